"""Boxes of global tensors, and the transfers that take tensors from one sharding to another.

A sharding says which boxes of which tensors each rank holds. Between any two shardings of the same
tensors the transfers follow by intersecting boxes: every element that a rank is to hold comes from
exactly one place, from the rank itself where it has it, else from the holder that has sent least.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Box:
    """A half-open range [low, high) in each dimension of a tensor."""

    low: Shape
    high: Shape

    @staticmethod
    def whole(shape: Shape) -> Box:
        """All of a tensor."""
        return Box((0,) * len(shape), shape)

    @property
    def shape(self) -> Shape:
        """Its widths."""
        return tuple(b - a for a, b in zip(self.low, self.high, strict=True))

    @property
    def size(self) -> int:
        """Its elements."""
        return prod(max(0, width) for width in self.shape)

    @cached_property
    def slices(self) -> tuple[slice, ...]:
        """What an array is indexed with to get it."""
        return tuple(slice(a, b) for a, b in zip(self.low, self.high, strict=True))

    def meet(self, other: Box) -> Box | None:
        """What both have in common; None if that is nothing."""
        low = tuple(map(max, self.low, other.low))
        high = tuple(map(min, self.high, other.high))
        return Box(low, high) if all(map(int.__lt__, low, high)) else None

    def minus(self, inner: Box) -> Iterator[Box]:
        """Disjoint boxes of what is left of it without `inner`, which lies within."""
        low, high = list(self.low), list(self.high)
        for d, (a, b) in enumerate(zip(inner.low, inner.high, strict=True)):
            if low[d] < a:
                yield Box(tuple(low), (*high[:d], a, *high[d + 1 :]))
            if b < high[d]:
                yield Box((*low[:d], b, *low[d + 1 :]), tuple(high))
            low[d], high[d] = a, b

    def moved(self, by: Shape) -> Box:
        """The same widths, so much further."""
        low = tuple(a + b for a, b in zip(self.low, by, strict=True))
        return Box(low, tuple(a + width for a, width in zip(low, self.shape, strict=True)))

    def seen_from(self, outer: Box) -> Box:
        """The same box, counted from the corner of one around it."""
        return self.moved(tuple(-o for o in outer.low))

    def rows(self, first: int, last: int) -> Box:
        """Of its indices along the first axis, those from `first` to `last` exclusive."""
        low, high = self.low, self.high
        return Box((low[0] + first, *low[1:]), (min(high[0], low[0] + last), *high[1:]))


@dataclass(frozen=True)
class Held:
    """A box of a global tensor that a rank holds, as an array of the box's shape."""

    tensor: str
    box: Box


Sharding = Mapping[int, Sequence[Held]]
"""By rank: its arrays."""


class NotHeldError(Exception):
    """A target asks for elements that no rank of the source holds."""


@dataclass(frozen=True)
class Transfer:
    """Elements that go from an array of one rank to an array of another, or of the same."""

    tensor: str
    src: int
    """Rank."""
    src_array: int
    """Which of its arrays."""
    src_box: Box
    """Within that array."""
    dst: int
    dst_array: int
    dst_box: Box

    @property
    def elements(self) -> int:
        """How many."""
        return self.src_box.size


@dataclass(frozen=True)
class _Array:
    rank: int
    index: int
    box: Box


def transfers(source: Sharding, target: Sharding) -> list[Transfer]:
    """What makes `target` of `source`, in the order of the target's ranks and arrays.

    Raises NotHeldError if the source lacks an element of it.
    """
    holders: defaultdict[str, list[_Array]] = defaultdict(list)
    for rank in sorted(source):
        for index, held in enumerate(source[rank]):
            holders[held.tensor].append(_Array(rank, index, held.box))
    sent: Counter[int] = Counter()
    plan: list[Transfer] = []
    for rank in sorted(target):
        for index, held in enumerate(target[rank]):
            for a, part in _cover(held, rank, holders[held.tensor], sent):
                here, there = part.seen_from(a.box), part.seen_from(held.box)
                plan.append(Transfer(held.tensor, a.rank, a.index, here, rank, index, there))
    return plan


def _cover(
    held: Held, rank: int, holders: Sequence[_Array], sent: Counter[int]
) -> Iterator[tuple[_Array, Box]]:
    """(array, what of it is taken) until nothing of `held` is missing."""
    missing = [held.box] if held.box.size else []
    while missing:
        wanted = missing.pop()
        found = [(a, part) for a in holders if (part := a.box.meet(wanted)) is not None]
        if not found:
            raise NotHeldError(f"no rank holds {held.tensor}{_shown(wanted)}, rank {rank} needs it")
        array, part = min(found, key=lambda f: (f[0].rank != rank, sent[f[0].rank], f[0].rank))
        if array.rank != rank:
            sent[array.rank] += part.size
        missing.extend(wanted.minus(part))
        yield array, part


def _shown(box: Box) -> str:
    return f"[{', '.join(f'{a}:{b}' for a, b in zip(box.low, box.high, strict=True))}]"


Arrays = Mapping[int, Sequence[Any]]
"""By rank: numpy arrays or torch tensors, as a sharding lists them."""


def move(plan: Iterable[Transfer], source: Arrays, target: Arrays) -> None:
    """Copies elements as planned, in one process."""
    for t in plan:
        target[t.dst][t.dst_array][t.dst_box.slices] = source[t.src][t.src_array][t.src_box.slices]
