"""SSA order: a value is defined before its uses, in its block or one around it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.ir import Block, Operation, SSAValue

from rpeg.ir.rules import violations
from rpeg.ir.rules.violations import Violation
from rpeg.ir.text.naming import name_of, shown


def order_violations(root: Operation) -> Iterator[tuple[Operation, Violation]]:
    """Each use that its definition does not dominate, with the cycle that it closes if it does."""
    for op, index in _op(root, set()):
        value = op.operands[index]
        around, place = _cycle(op, value), violations.operand(index)
        if around:
            yield op, Violation("zero-distance-cycle", _cycle_text(around), place)
        else:
            text = f"%{name_of(value)} is used before its definition"
            yield op, Violation("used-before-definition", text, place)


def _cycle_text(around: Sequence[Operation]) -> str:
    names = [shown(op.results[0]) if op.results else op.name for op in around]
    return (
        f"zero-distance cycle: {' -> '.join([*names, names[0]])}: each needs the one before it in "
        "the same step; read the version of an earlier step"
    )


def _cycle(op: Operation, value: SSAValue) -> Sequence[Operation]:
    """Operations from `op` to the one that makes `value`, each read by the next; none without."""
    block = value.owner.parent_block() if isinstance(value.owner, Operation) else None
    user = block.find_ancestor_op_in_block(op) if block is not None else None
    if block is None or user is None or not isinstance(value.owner, Operation):
        return []
    readers: dict[Operation, Operation | None] = {value.owner: None}
    for reader in (queue := [value.owner]):
        for maker in _makers(reader, block):
            if maker not in readers:
                readers[maker] = reader
                queue.append(maker)
    return list(_chain(user, readers)) if user in readers else []


def _chain(first: Operation, following: dict[Operation, Operation | None]) -> Iterator[Operation]:
    at: Operation | None = first
    while at is not None:
        yield at
        at = following[at]


def _makers(op: Operation, block: Block) -> Iterator[Operation]:
    """The operations of a block whose results `op` reads, in its regions too."""
    owners = (value.owner for inner in op.walk() for value in inner.operands)
    yield from (o for o in owners if isinstance(o, Operation) and o.parent_block() is block)


def _op(op: Operation, visible: set[int]) -> Iterator[tuple[Operation, int]]:
    """Uses in an operation of values that are not visible there; `visible` holds the ids of those
    that are, which are quick to hash.
    """
    if not visible.issuperset(map(id, op.operands)):
        yield from ((op, n) for n, value in enumerate(op.operands) if id(value) not in visible)
    for region in op.regions:
        for block in region.blocks:
            yield from _block(block, visible)


def _block(block: Block, visible: set[int]) -> Iterator[tuple[Operation, int]]:
    defined = [id(value) for value in block.args]
    visible.update(defined)
    for op in block.ops:
        yield from _op(op, visible)
        results = [id(value) for value in op.results]
        visible.update(results)
        defined += results
    visible.difference_update(defined)
