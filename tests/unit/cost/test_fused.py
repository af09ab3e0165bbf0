"""Fused passes pack and move their rows once."""

from __future__ import annotations

from xdsl.context import Context
from xdsl.passes import ModulePass

from rpeg.cost.platform import load_platform
from rpeg.cost.profiles.profiling import profiles
from rpeg.cost.profiles.setting import Inputs, Setting
from rpeg.frontend import load
from rpeg.ir.base import RpegOp
from rpeg.ir.stages import stage_name
from rpeg.passes.base import pipelines
from rpeg.passes.rpeg_annotate_parallelism import RpegAnnotateParallelismPass
from rpeg.passes.rpeg_fuse_inference import RpegFuseInferencePass
from tests.unit.cost.placing import example


def overheads(*passes: ModulePass) -> dict[str, float]:
    """Seconds of overhead by stage, under the plan for one node and after those passes."""
    module = load(example("ppo_7b_gh200"), "test.rpeg").module
    assert module is not None
    for each in (RpegAnnotateParallelismPass(plan="four"), *passes):
        each.apply(Context(), module)
    setting = Setting.of(next(pipelines(module)), load_platform("alps-1"), Inputs())
    table = profiles(setting)
    found = {stage_name(op): p for op, p in table.items() if isinstance(op, RpegOp) and op.PLACED}
    return {name: p.breakdown.get("overhead", 0.0) for name, p in found.items()}


def test_all_but_the_first_of_fused_passes_take_over_rows() -> None:
    """The group is the reward model's score, two log-probs and the values."""
    apart, fused = overheads(), overheads(RpegFuseInferencePass())
    first, *others = (name for name in apart if name in ("rm", "r", "lp", "lp_old", "lp_ref", "v"))
    assert fused[first] == apart[first]
    assert others
    assert all(fused[name] < apart[name] for name in others)
