"""Each stage of a step has a name of its own: plans, channels and reports go by it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.ir import Operation

from rpeg.ir.base import RpegOp
from rpeg.ir.ops.step import StepOp
from rpeg.ir.ops.updates import UpdateOp
from rpeg.ir.rules.violations import Violation
from rpeg.ir.rules.walks import Walk
from rpeg.ir.stages import written_name


def stage_name_violations(walk: Walk) -> Iterator[tuple[Operation, Violation]]:
    """Each stage with the name of one before it. Updates go by their models."""
    for step in walk.of(StepOp):
        yield from _repeated(walk.inside(step))


def _repeated(ops: Sequence[Operation]) -> Iterator[tuple[Operation, Violation]]:
    taken: set[str | None] = set()
    for op in ops:
        if not isinstance(op, RpegOp) or not op.PLACED or isinstance(op, UpdateOp):
            continue
        name = written_name(op)
        if name and name in taken:
            text = (
                f'another stage is called `{name}`: write attributes {{stage = "..."}} with a name '
            )
            yield op, Violation("repeated-stage", f"{text}of its own")
        taken.add(name)
