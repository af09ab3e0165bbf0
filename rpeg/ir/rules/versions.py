"""Versions of buffers: each is taken by one operation, and the step yields the last.

Weights are copied, so anyone may read a version of them. A group that is popped is gone from the
buffer: whatever worked on the older version would see it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.ir import Operation, SSAValue

from rpeg.ir.ops.regions import EveryOp
from rpeg.ir.ops.step import StepOp
from rpeg.ir.rules import violations
from rpeg.ir.rules.violations import Violation
from rpeg.ir.rules.walks import Walk
from rpeg.ir.text.naming import name_of
from rpeg.ir.types.buffer import BufferType

Taker = tuple[Operation, int]
"""An operation, and the number of its operand."""


def version_violations(walk: Walk) -> Iterator[tuple[Operation, Violation]]:
    """Each second taker of a version, and each version without one."""
    for step in walk.of(StepOp):
        for value, takers in _taken(walk.inside(step)).items():
            yield from _problems(step, value, takers)


def _taken(ops: Sequence[Operation]) -> dict[SSAValue, list[Taker]]:
    """The versions of buffers among operations and who takes them, in the order of the text."""
    taken: dict[SSAValue, list[Taker]] = {}
    for op in ops:
        for index, value in enumerate(op.operands):
            if _takes(op, value):
                taken.setdefault(value, []).append((op, index))
        blocks = (block for region in op.regions for block in region.blocks)
        for value in (*op.results, *(argument for block in blocks for argument in block.args)):
            if isinstance(value.type, BufferType):
                taken.setdefault(value, [])
    return taken


def _takes(op: Operation, value: SSAValue) -> bool:
    """Whether an operation takes a version; an `every` only says what stays where it waits."""
    return isinstance(value.type, BufferType) and not isinstance(op, EveryOp)


def _problems(
    step: StepOp, value: SSAValue, takers: list[Taker]
) -> Iterator[tuple[Operation, Violation]]:
    name, held = name_of(value), value.type
    if isinstance(held, BufferType) and not takers:
        maker = value.owner if isinstance(value.owner, Operation) else step
        text = (
            f"`%{name}` of the buffer `{held.title}` is lost: push to it, pop from it or yield it"
        )
        yield maker, Violation("lost-version", text)
    for op, index in takers[1:]:
        text = f"`%{name}` was taken by {takers[0][0].name} already: take the buffer that it gives"
        yield op, Violation("lost-version", text, violations.operand(index))
