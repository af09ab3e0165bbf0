"""Weights as a layout's ranks hold them: shards, which move by transfers of boxes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from rpeg.ir.layout import size_of, width_of, zero_of
from rpeg.ir.types.attributes import RecordAttr
from rpeg.sharding.boxes import Box, Held, NotHeldError, Shape, Sharding, move, transfers
from rpeg.sharding.decoder import Decoder, Split

Arrays = dict[int, list[Tensor]]


@dataclass(frozen=True)
class Home:
    """Where weights are: the ranks of a process group, and the layout that they have there."""

    pool: str
    first: int
    """Its first rank in the world."""
    ranks: int
    layout: RecordAttr | None
    """None: whole on each rank."""

    @property
    def replicas(self) -> int:
        """Copies of the whole model."""
        return self.ranks if self.layout is None else width_of(self.layout, "dp")

    def sharding(self, decoder: Decoder) -> Sharding:
        """What each rank holds of the model."""
        if self.layout is None:
            held = _whole(dict(decoder.tensors()))
            return {self.first + rank: held for rank in range(self.ranks)}
        return self._shifted(self._split(decoder).sharding(self.replicas))

    def owned(self, decoder: Decoder) -> Sharding:
        """What each rank updates of the model: what it holds, or its part of a shared optimizer."""
        if self.layout is None or not zero_of(self.layout):
            return self.sharding(decoder)
        return self._shifted(self._split(decoder).flat_sharding(self.replicas))

    def replica(self, number: int) -> range:
        """The ranks of one copy of the model; a stage with fewer uses the first ones."""
        width = self.ranks // self.replicas
        return range(self.first + number * width, self.first + (number + 1) * width)

    def _split(self, decoder: Decoder) -> Split:
        assert self.layout is not None
        tp, pp, vpp = (width_of(self.layout, axis) for axis in ("tp", "pp", "vpp"))
        return Split(decoder, tp=tp, pp=pp, vpp=vpp)

    def _shifted(self, local: Sharding) -> Sharding:
        return {self.first + rank: held for rank, held in local.items()}

    def __str__(self) -> str:
        widths = _widths(self.layout)
        held = "whole" if widths is None else "x".join(f"{n}{w}" for n, w in widths if w > 1)
        return f"{held or 'one process'} on `{self.pool}`"


def _widths(layout: RecordAttr | None) -> tuple[tuple[str, int], ...] | None:
    if layout is None:
        return None
    return tuple((axis, width_of(layout, axis)) for axis in ("dp", "tp", "pp", "vpp"))


def home(pool: str, ranks: range, layout: RecordAttr | None) -> Home:
    """A layout on a process group; one that is smaller than the group leaves ranks idle."""
    return Home(pool, ranks.start, len(ranks) if layout is None else size_of(layout), layout)


def _whole(shapes: Mapping[str, Shape]) -> list[Held]:
    return [Held(name, Box.whole(shape)) for name, shape in shapes.items()]


class Shards(Mapping[str, Tensor]):
    """A model's tensors, held as shards: to read one gathers it from the ranks of one replica."""

    def __init__(self, decoder: Decoder, at: Home, arrays: Arrays, replica: int = 0) -> None:
        self.decoder = decoder
        self.home = at
        self._arrays = arrays
        self._replica = replica

    @staticmethod
    def cut(tensors: Mapping[str, Tensor], decoder: Decoder, at: Home) -> Shards:
        """Whole tensors, as each rank updates its part of them and replicas share the parts."""
        source: Sharding = {WHOLE: _whole(dict(decoder.tensors()))}
        parts = {WHOLE: [tensors[held.tensor] for held in source[WHOLE]]}
        owned, held = at.owned(decoder), at.sharding(decoder)
        if owned != held:
            source, parts = owned, _moved(source, parts, owned)
        return Shards(decoder, at, _moved(source, parts, held))

    def at(self, other: Home) -> Shards:
        """The same weights at another place."""
        source, target = (place.sharding(self.decoder) for place in (self.home, other))
        return Shards(self.decoder, other, _moved(source, self._arrays, target))

    def serves(self, other: Home) -> bool:
        """Whether each rank of another place has what it needs there already."""
        here, there = (place.sharding(self.decoder) for place in (self.home, other))
        try:
            for rank, held in there.items():
                transfers({rank: here.get(rank, [])}, {rank: held})
        except NotHeldError:
            return False
        return True

    def of_replica(self, number: int) -> Shards:
        """The same, read from another replica."""
        return Shards(self.decoder, self.home, self._arrays, number)

    def differing(self) -> str | None:
        """A tensor that is not the same on every replica, if there is one."""
        others = [self.of_replica(number) for number in range(1, self.home.replicas)]
        apart = (name for name in self for other in others if not self[name].equal(other[name]))
        return next(apart, None)

    @cached_property
    def _tensors(self) -> dict[str, Tensor]:
        sharding = self.home.sharding(self.decoder)
        mine = {rank: sharding[rank] for rank in self.home.replica(self._replica)}
        names = _whole(dict(self.decoder.tensors()))
        gathered = _moved(mine, self._arrays, {WHOLE: names})[WHOLE]
        return {held.tensor: tensor for held, tensor in zip(names, gathered, strict=True)}

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


WHOLE = -1
"""Stands for the one holder of whole tensors."""


def _moved(source: Sharding, arrays: Arrays, target: Sharding) -> Arrays:
    made = {r: [torch.full(h.box.shape, torch.nan) for h in held] for r, held in target.items()}
    move(transfers(source, target), arrays, made)
    return made
