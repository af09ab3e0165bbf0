"""SSA order: a value is defined before its uses, in its block or one around it."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.ir import Block, Operation, SSAValue

from rpeg.ir.naming import name_of


def order_violations(root: Operation) -> Iterator[tuple[Operation, int, str]]:
    """(operation, operand number, message) for each use that its definition does not dominate."""
    visible: set[SSAValue] = set()
    yield from _op(root, visible)


def _op(op: Operation, visible: set[SSAValue]) -> Iterator[tuple[Operation, int, str]]:
    for index, value in enumerate(op.operands):
        if value not in visible:
            yield op, index, f"%{name_of(value)} is used before its definition"
    for region in op.regions:
        for block in region.blocks:
            yield from _block(block, visible)
    visible.update(op.results)


def _block(block: Block, visible: set[SSAValue]) -> Iterator[tuple[Operation, int, str]]:
    inside = visible | set(block.args)
    for op in block.ops:
        yield from _op(op, inside)
