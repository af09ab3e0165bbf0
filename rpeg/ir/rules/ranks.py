"""Rules of L1: with process groups declared, every stage runs on one of them and fills it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.ir import Operation

from rpeg.ir.declared import step_of
from rpeg.ir.layout import later_first, size_of
from rpeg.ir.ops.declare import PipelineOp
from rpeg.ir.ops.movement import POOL, RanksOp, clause_of, pool_of
from rpeg.ir.rules import violations
from rpeg.ir.rules.shares import share_violations
from rpeg.ir.rules.violations import Violation, hint
from rpeg.ir.rules.walks import Walk
from rpeg.ir.stages import stages


def groups_of(pipeline: Operation) -> dict[str, RanksOp]:
    """The process groups of a pipeline, by name."""
    ops = pipeline.regions[0].block.ops
    return {op.title: op for op in ops if isinstance(op, RanksOp)}


def rank_violations(walk: Walk) -> Iterator[tuple[Operation, Violation]]:
    """Each stage without a declared process group, or with a layout of another size."""
    for pipeline in walk.of(PipelineOp):
        if groups := groups_of(pipeline):
            step = step_of(pipeline)
            placed = [op for op in walk.inside(step) if pool_of(op) is not None] if step else []
            found = [
                (op, broken)
                for op in dict.fromkeys([*stages(pipeline).values(), *placed])
                for broken in _stage(op, groups)
            ]
            yield from _first_shares(found)


def _first_shares(
    found: Sequence[tuple[Operation, Violation]],
) -> Iterator[tuple[Operation, Violation]]:
    """Batches that do not divide once, at the first stage that takes part of them."""
    told: set[str] = set()
    for op, broken in found:
        if broken.code != "uneven-shares" or broken.message not in told:
            yield op, broken
        told.add(broken.message)


def _stage(op: Operation, groups: dict[str, RanksOp]) -> Iterator[Violation]:
    pool, layout = pool_of(op), clause_of(op, "par")
    size = size_of(layout) if layout is not None else None
    if pool is None:
        wanted = " or ".join(f'pool = "{name}"' for name in groups)
        yield Violation(
            "no-process-group", f"{op.name} has no process group: write attributes {{{wanted}}}"
        )
    elif pool not in groups:
        near = hint(pool, groups) or f"; declared: {', '.join(groups)}"
        yield Violation(
            "unknown-process-group",
            f"`{pool}` is not a process group{near}",
            violations.setting(POOL),
        )
    elif layout is not None and size != len(groups[pool].ranks):
        text = f"tp x pp x cp x dp = {size}, `{pool}` has {len(groups[pool].ranks)} ranks"
        yield Violation("layout-size", later_first(layout, text), violations.setting("par"))
    elif layout is not None:
        yield from share_violations(op, layout, clause_of(op, "engine"))
