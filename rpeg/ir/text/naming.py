"""Names of values in messages, and the trajectories that a field belongs to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, Block, Operation, SSAValue

from rpeg.ir.types.batches import PairsType
from rpeg.ir.types.values import (
    NEXT,
    ResponseFieldType,
    TokenFieldType,
    TrajectoriesType,
    WeightsType,
)

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""A plain name: it needs no quotes in a text, and names files as it is."""
MOVES = ("rpeg.stream", "rpeg.join", "rpeg.transfer")
"""Operations whose result is their operand, elsewhere or in another form."""

Field = TrajectoriesType | TokenFieldType | ResponseFieldType


def name_of(value: SSAValue) -> str:
    """What a message calls a value: its name in the text, else the operation that makes it."""
    if isinstance(value.type, WeightsType):
        return value.type.owner
    if value.name_hint:
        return value.name_hint
    owner = value.owner
    return "argument" if isinstance(owner, Block) else owner.name.removeprefix("rpeg.")


def free_name(at: Operation, wanted: str) -> str:
    """`wanted`, or the first of `wanted_1`, `wanted_2`, ... that names nothing yet around `at`."""
    top: Operation = at
    while (parent := top.parent_op()) is not None:
        top = parent
    taken = {result.name_hint for op in top.walk() for result in op.results}
    taken |= {held.data for op in top.walk() if isinstance(held := _symbol(op), StringAttr)}
    numbered = (f"{wanted}_{number}" for number in count(1))
    return next(name for name in chain([wanted], numbered) if name not in taken)


def _symbol(op: Operation) -> Attribute | None:
    return op.properties.get("sym_name")


def shown(value: SSAValue) -> str:
    """`name_of` with the version, for weights that have one: `actor@i`, `actor@[i-2..i]`."""
    if not isinstance(value.type, WeightsType) or _frozen(value):
        return name_of(value)
    return f"{value.type.owner}{version(value.type, step_index(value))}"


def version(weights: WeightsType, index: str) -> str:
    """`@i`, `@i+1`, `@i-2` or `@[i-2..i]`."""
    low, high = weights.lag
    if low == high:
        return f"@{_offset(index, low)}"
    return f"@[{_offset(index, high)}..{_offset(index, low)}]"


def _offset(index: str, lag: int) -> str:
    if lag == 0:
        return index
    return f"{index}+1" if lag == NEXT else f"{index}-{lag}"


def _frozen(value: SSAValue) -> bool:
    return isinstance(value.owner, Operation) and value.owner.name == "rpeg.get"


def step_index(value: SSAValue) -> str:
    """The name of the index of the step around a value."""
    owner = value.owner
    op = owner.parent_op() if isinstance(owner, Block) else owner
    while op is not None and op.name != "rpeg.step":
        op = op.parent_op()
    held = op.properties.get("index") if op is not None else None
    return held.data if isinstance(held, StringAttr) else "i"


def unmoved(value: SSAValue) -> SSAValue:
    """What a value was before it moved or came in chunks."""
    while isinstance(value.owner, Operation) and value.owner.name in MOVES:
        value = value.owner.operands[0]
    return value


def trajectories_of(value: SSAValue) -> SSAValue | None:
    """The trajectories, or pairs, that a field belongs to; themselves for these."""
    seen: set[SSAValue] = set()
    left = [value]
    while left:
        field = left.pop()
        makers = _belongs_with(field)
        if not makers and isinstance(field.type, TrajectoriesType | PairsType):
            return field
        if field not in seen:
            seen.add(field)
            left += reversed(makers)
    return None


def _belongs_with(value: SSAValue) -> Sequence[SSAValue]:
    """Values of the same trajectories as a field, as its maker says; none for these."""
    owner = value.owner
    if isinstance(owner, Operation) and owner.name in MOVES:
        return owner.operands[:1]
    if isinstance(owner, Block) or not isinstance(value.type, TokenFieldType | ResponseFieldType):
        return ()
    if owner.name in ("rpeg.generate", "rpeg.pop"):
        return owner.results[:1]
    if owner.name == "rpeg.fuse":
        inside = (r for op in owner.regions[0].block.ops for r in op.results)
        pairs = zip(inside, owner.results, strict=False)
        return [inner for inner, outer in pairs if outer is value]
    if owner.name == "rpeg.collect":
        return _kept(owner, value)
    return owner.operands


def _kept(collect: Operation, value: SSAValue) -> Sequence[SSAValue]:
    """The result of a collect that holds the trajectories of another of its results."""
    keep = collect.regions[0].block.last_op
    if keep is None:
        return ()
    pairs = list(zip(keep.operands, collect.results, strict=False))
    inner = next((trajectories_of(kept) for kept, outer in pairs if outer is value), None)
    return [outer for kept, outer in pairs if kept is inner]


def forget_empty_names(values: Iterable[SSAValue]) -> None:
    """Of a name such as `_9` xDSL keeps what stands before the number, and then takes no copy of a
    value with an empty name.
    """
    for value in values:
        if not value.name_hint:
            value.name_hint = None


def values_of(module: Operation) -> Iterator[SSAValue]:
    """Every value of a module."""
    for op in module.walk():
        yield from op.results
        yield from (value for region in op.regions for b in region.blocks for value in b.args)
