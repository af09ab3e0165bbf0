"""Stages: the operations of a step that a plan gives a line, and how they depend on each other."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, count, islice

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Operation

from rpeg.ir.base import RpegOp
from rpeg.ir.declared import step_of
from rpeg.ir.ops.updates import UpdateOp
from rpeg.ir.types.values import WeightsType
from rpeg.ir.vocabulary.signature import Scope

STAGE = "stage"
"""The attribute that names a stage; value names are only hints and need not survive other tools."""


def stage_name(op: RpegOp) -> str:
    """The name of a stage: its first result in the surface, or the model for an update. One that
    lost its name in another tool is called by its operation and a number: `score`, `score_2`.
    """
    return written_name(op) or _numbered(op)


def written_name(op: RpegOp) -> str | None:
    """`stage_name`, where a text says it."""
    if isinstance(op, UpdateOp):
        return op.makes()
    held = op.attributes.get(STAGE)
    if isinstance(held, StringAttr):
        return held.data
    return op.results[0].name_hint if op.results else None


def _numbered(op: RpegOp) -> str:
    step = step_of(op)
    around = _placed(step) if step is not None else [op]
    taken = {written_name(other) for other in around}
    bare = op.name.rpartition(".")[2]
    alike = [o for o in around if o.name == op.name and not written_name(o)]
    numbered = (f"{bare}_{number}" for number in count(2))
    free = (name for name in chain([bare], numbered) if name not in taken)
    return next(islice(free, alike.index(op), None))


def _placed(step: Operation) -> list[RpegOp]:
    return [op for op in step.walk() if isinstance(op, RpegOp) and op.PLACED]


def stages(op: Operation) -> dict[str, RpegOp]:
    """The stages of the pipeline around `op`, by name, in program order."""
    step = step_of(op)
    if step is None:
        return {}
    return {stage_name(o): o for o in _placed(step)}


def value_names(op: Operation) -> set[str]:
    """Names of all values of the pipeline's step."""
    step = step_of(op)
    results = (r for o in step.walk() for r in o.results) if step is not None else ()
    return {r.name_hint for r in results if r.name_hint}


def moving(op: Operation) -> set[str]:
    """Names of the models whose weights change from step to step."""
    step = step_of(op)
    types = step.regions[0].block.arg_types if step is not None else ()
    return {t.owner for t in types if isinstance(t, WeightsType)}


def scope_of(op: RpegOp) -> Scope:
    """The unit on which an operation is a map; an update of one optimizer step sums samples."""
    if isinstance(op, UpdateOp):
        return "batch" if op.optimizer_steps > 1 else "sample"
    return op.SCOPE


def between(stage: RpegOp, source: RpegOp) -> Iterator[RpegOp]:
    """`stage` and every operation on a path to it from the results of `source`."""
    reach: dict[Operation, bool] = {}

    def reaches(op: Operation) -> bool:
        if op not in reach:
            reach[op] = False
            makers = [v.owner for v in op.operands if isinstance(v.owner, Operation)]
            found = [m is source or reaches(m) for m in makers]  # every path, not the first
            reach[op] = any(found)
        return reach[op]

    reaches(stage)
    yield stage
    yield from (o for o, yes in reach.items() if yes and o is not stage and isinstance(o, RpegOp))
