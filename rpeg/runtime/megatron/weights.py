"""Weights between Hugging Face names, whole, and Megatron-Core's parameters, fused and sharded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from rpeg.runtime.groups import Groups
from rpeg.runtime.models.shape import ModelShape
from rpeg.sharding.boxes import Box, Held, Sharding, Transfer, move, transfers
from rpeg.sharding.decoder import Split, Unit

Read = Callable[[str], Tensor]
"""Hugging Face name -> whole tensor."""

WHOLE = 0
"""Stands for the one holder of whole tensors."""


class _Part(NamedTuple):
    """Elements of a shard that belong to a whole tensor."""

    rank: int
    inside: tuple[slice, ...]
    """Of that rank's shard."""
    source: int
    """Which of the unit's whole tensors."""
    outside: tuple[slice, ...]
    """Of that tensor."""


class WeightMap:
    """Both directions between whole Hugging Face tensors and one process's Megatron parameters."""

    def __init__(self, shape: ModelShape, groups: Groups) -> None:
        layout = groups.layout
        self.shape = shape
        self.groups = groups
        self.split = Split(shape, tp=layout.tp, pp=layout.pp, vpp=layout.vpp)
        self._shapes = dict(shape.tensors())
        self._units = tuple(self.split.units())
        self._gathers: dict[str, list[_Part]] = {}
        self._rows: dict[tuple[str, int], list[slice]] = {}

    def local_units(self) -> Iterator[Unit]:
        """The parameters on this pipeline stage, with the last stage's copy of a tied embedding."""
        return self.split.on_stage(self.groups.pp.rank())

    def shards(self, read: Read) -> Iterator[tuple[str, Tensor]]:
        """(Megatron name, this process's shard) of every parameter on this pipeline stage."""
        for unit in self.local_units():
            yield unit.name, self._shard(unit, read)

    def _shard(self, unit: Unit, read: Read) -> Tensor:
        parts = [read(name) for name in unit.sources]
        shard = parts[0].new_zeros(self.split.local_shape(unit))
        rank = self.groups.tp.rank()
        mine = {rank: self._held(unit, rank)}
        plan = transfers({WHOLE: self._whole(unit)}, mine)
        move(plan, {WHOLE: parts}, {rank: self._views(unit, rank, shard)})
        return shard

    def whole(self, local: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """(Hugging Face name, whole tensor) from every process's `local` parameters.

        Collective over the tensor- and pipeline-parallel groups; every process gets every tensor,
        a copy.
        """
        for unit in self._units:
            like = next(iter(local.values()))
            parts = [like.new_empty(self._shapes[name]) for name in unit.sources]
            if unit.stage == self.groups.pp.rank():
                shards = self._gather(local[unit.name])
                for rank, inside, source, outside in self._gathering(unit):
                    parts[source][outside] = shards[rank][inside]
            for name, part in zip(unit.sources, parts, strict=True):
                yield name, self._to_every_stage(part, unit.stage)

    def held(self, local: Mapping[str, Tensor]) -> Iterator[tuple[Held, Tensor]]:
        """(box of a whole tensor, this process's part of `local` that it is)."""
        rank = self.groups.tp.rank()
        for unit in self.local_units():
            views = self._views(unit, rank, local[unit.name])
            yield from zip(self._held(unit, rank), views, strict=True)

    def _gathering(self, unit: Unit) -> list[_Part]:
        """How a parameter's shards make whole tensors."""
        if unit.name not in self._gathers:
            held: Sharding = {rank: self._held(unit, rank) for rank in range(self.split.tp)}
            plan = transfers(held, {WHOLE: self._whole(unit)})
            self._gathers[unit.name] = [self._part(unit, transfer) for transfer in plan]
        return self._gathers[unit.name]

    def _part(self, unit: Unit, t: Transfer) -> _Part:
        row = self.split.blocks(unit, t.src)[t.src_array].row
        inside = t.src_box.moved((row, *(0 for _ in t.src_box.low[1:])))
        return _Part(t.src, inside.slices, t.dst_array, t.dst_box.slices)

    def _whole(self, unit: Unit) -> list[Held]:
        return [Held(name, Box.whole(self._shapes[name])) for name in unit.sources]

    def _held(self, unit: Unit, rank: int) -> list[Held]:
        return [block.held for block in self.split.blocks(unit, rank)]

    def _views(self, unit: Unit, rank: int, shard: Tensor) -> list[Tensor]:
        known = unit.name, rank
        if known not in self._rows:
            self._rows[known] = [block.rows for block in self.split.blocks(unit, rank)]
        return [shard[rows] for rows in self._rows[known]]

    def _gather(self, shard: Tensor) -> list[Tensor]:
        tp = self.groups.tp.size()
        if tp == 1:
            return [shard]
        shards = [torch.empty_like(shard) for _ in range(tp)]
        dist.all_gather(shards, shard.contiguous(), group=self.groups.tp)
        return shards

    def _to_every_stage(self, tensor: Tensor, stage: int) -> Tensor:
        if self.groups.pp.size() > 1:
            owner = dist.get_global_rank(self.groups.pp, stage)
            dist.broadcast(tensor, src=owner, group=self.groups.pp)
        return tensor
