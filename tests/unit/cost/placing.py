"""Pipelines of examples and of texts, placed as their plans say."""

from __future__ import annotations

from pathlib import Path

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from rpeg.cost.estimate import Estimate
from rpeg.cost.platform import load_platform
from rpeg.cost.pricing import estimate
from rpeg.cost.profiles.setting import Inputs, checkers_of
from rpeg.frontend import load
from rpeg.ir.ops.plan import PlanOp
from rpeg.passes.rpeg_annotate_parallelism import RpegAnnotateParallelismPass
from rpeg.passes.rpeg_schedule import RpegSchedulePass

EXAMPLES = Path(__file__).parents[3] / "examples"


def placed(text: str, plan: str) -> ModuleOp:
    """A text's one pipeline at L2."""
    module = load(text, "test.rpeg").module
    assert module is not None
    for each in (RpegAnnotateParallelismPass(plan=plan), RpegSchedulePass()):
        each.apply(Context(), module)
    return module


def priced(text: str, plan: str, cluster: str) -> Estimate:
    """What a text's pipeline costs under one of its plans, its verifiers where the plan says."""
    loaded = load(text, "test.rpeg").module
    assert loaded is not None
    plans = {op.title: op for op in loaded.walk() if isinstance(op, PlanOp)}
    inputs = Inputs(checkers=checkers_of(plans[plan]))
    return estimate(placed(text, plan), load_platform(cluster), inputs, plan=plan)


def example(name: str) -> str:
    """The text of an example."""
    return (EXAMPLES / f"{name}.rpeg").read_text(encoding="utf-8")
