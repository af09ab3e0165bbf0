"""Weights between Hugging Face names, whole, and Megatron-Core's parameters, fused and sharded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate

import torch
import torch.distributed as dist
from torch import Tensor

from rpeg.runtime.groups import Groups, device
from rpeg.runtime.models.shape import ModelShape
from rpeg.sharding.boxes import Box, Held, move, transfers
from rpeg.sharding.decoder import Split, Unit

Read = Callable[[str], Tensor]
"""Hugging Face name -> whole tensor."""

WHOLE = 0
"""Stands for the one holder of whole tensors."""


class WeightMap:
    """Both directions between whole Hugging Face tensors and one process's Megatron parameters."""

    def __init__(self, shape: ModelShape, groups: Groups) -> None:
        layout = groups.layout
        self.shape = shape
        self.groups = groups
        self.split = Split(shape, tp=layout.tp, pp=layout.pp, vpp=layout.vpp)
        self._shapes = dict(shape.tensors())
        self._units = tuple(self.split.units())
        self._orders: dict[str, Tensor | slice] = {}
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
            if unit.stage == self.groups.pp.rank():
                joined = self._joined(unit, self._gather(local[unit.name]))
            else:
                rows = sum(self._shapes[name][0] for name in unit.sources)
                columns = self._shapes[unit.sources[0]][1:]
                joined = next(iter(local.values())).new_empty(rows, *columns)
            joined = self._to_every_stage(joined, unit.stage)
            if len(unit.sources) == 1:
                yield unit.sources[0], joined
                continue
            parts = joined.split([self._shapes[name][0] for name in unit.sources])
            yield from zip(unit.sources, parts, strict=True)

    def _joined(self, unit: Unit, shards: Sequence[Tensor]) -> Tensor:
        """The whole tensors that a parameter is made of, one below the other, from its shards."""
        if unit.dim == 1:
            return torch.cat(list(shards), dim=1)
        rows = shards[0] if len(shards) == 1 else torch.cat(list(shards))
        order = self._order(unit, len(shards[0]))
        return rows[order].clone() if isinstance(order, slice) else rows.index_select(0, order)

    def _order(self, unit: Unit, size: int) -> Tensor | slice:
        """Which rows of all its shards, of `size` rows each, those are."""
        if unit.name not in self._orders:
            heights = [self._shapes[name][0] for name in unit.sources]
            begins = dict(zip(unit.sources, accumulate(heights, initial=0), strict=False))
            order = torch.empty(sum(heights), dtype=torch.long)
            for rank in range(self.split.tp if unit.dim == 0 else 1):
                for block in self.split.blocks(unit, rank):
                    rows = torch.arange(block.rows.start, block.rows.stop) + rank * size
                    first = begins[block.source] + block.box.low[0]
                    order[first : first + len(rows)] = rows
            in_place = torch.equal(order, torch.arange(len(order)))
            self._orders[unit.name] = slice(len(order)) if in_place else order.to(device())
        return self._orders[unit.name]

    def held(self, local: Mapping[str, Tensor]) -> Iterator[tuple[Held, Tensor]]:
        """(box of a whole tensor, this process's part of `local` that it is)."""
        rank = self.groups.tp.rank()
        for unit in self.local_units():
            views = self._views(unit, rank, local[unit.name])
            yield from zip(self._held(unit, rank), views, strict=True)

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
