"""Levels as data: every operation has one, passes make them, and are held to theirs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from rpeg.ir.dialect import OPERATIONS
from rpeg.ir.levels import LEVELS, LevelName, level_violations
from rpeg.ir.ops.movement import PublishOp
from rpeg.ir.ops.sampling import GenerateOp, PoisonOp
from rpeg.ir.rrt.program import Rrt
from rpeg.ir.rsched import Rsched
from rpeg.passes import PASSES
from rpeg.passes.base import PassRefused, RpegPass
from tests.unit.passes.pipelines import grpo, parse

LOWERING = ("rpeg-annotate-parallelism", "rpeg-schedule", "rpeg-lower-to-programs")


def test_every_operation_is_of_a_level() -> None:
    all_levels = frozenset[str]().union(*(level.operations for level in LEVELS.values()))
    defined = {op.name for op in (*OPERATIONS, *Rsched.operations, *Rrt.operations)}
    assert all_levels == defined - {PoisonOp.name}


def lowered() -> Iterator[tuple[LevelName, ModuleOp]]:
    """A pipeline at each level."""
    module = parse(grpo())
    yield "L0", module
    for name in LOWERING:
        step = PASSES[name]()
        assert issubclass(step, RpegPass)
        step().apply(Context(), module)
        (gives,) = step.LEVELS.values()
        yield gives, module


def test_what_the_passes_make_is_legal_at_its_level_alone() -> None:
    for name, module in lowered():
        legal = [level for level in LEVELS if not list(level_violations(module, level))]
        assert legal == [name]


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_refuses_a_module_of_another_level(name: str) -> None:
    step = PASSES[name]()
    assert issubclass(step, RpegPass)
    for level, module in lowered():
        if level not in step.LEVELS:
            with pytest.raises(PassRefused, match=f"^takes {next(iter(step.LEVELS))}: "):
                step().apply(Context(), module)


@dataclass(frozen=True)
class Untidy(RpegPass):
    """Leaves an operation and a note of L2 in a module of L0."""

    name = "rpeg-untidy"

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        for generate in [o for o in op.walk() if isinstance(o, GenerateOp)]:
            publish = PublishOp.make([generate.weights], location=generate.location)
            block = generate.parent_block()
            assert block is not None
            block.insert_op_before(publish, generate)
            generate.attributes["task"] = generate.attributes["stage"]


def test_what_a_pass_leaves_is_named_at_its_place() -> None:
    module = parse(grpo())
    generate = next(op for op in module.walk() if isinstance(op, GenerateOp))
    with pytest.raises(PassRefused) as refused:
        Untidy().apply(Context(), module)
    assert [(p.op.location, p.message) for p in refused.value.problems] == [
        (generate.location, "gives L0: rpeg.publish is of L1 and L2, not of L0"),
        (generate.location, "gives L0: rpeg.generate has the note `task`, not of L0"),
    ]
