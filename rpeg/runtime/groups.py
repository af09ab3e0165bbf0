"""The world and the process groups of a layout: made once, handed in, never looked up globally.

A world is what belongs to one pool: all processes of the launch unless there are several pools.

Ranks are numbered tensor-parallel fastest, then context, pipeline and data: the processes of a
replica are neighbours, and a process has the same share of a batch in every layout of a program. A
world of one needs no launcher.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import PrefixStore  # type: ignore[attr-defined]

from rpeg.runtime import world
from rpeg.runtime.layout import Layout
from rpeg.runtime.numerics.memory import keep_freed_memory

AXES = ("dp", "pp", "cp", "tp")
"""Slowest first."""

Partition = tuple[tuple[int, ...], ...]


def join_world(name: str = "all", ranks: range | None = None) -> tuple[int, int]:
    """(rank, processes) of this process's world, which it joins if it hasn't yet: that of the
    processes `ranks` of the launch, by default of all.

    NCCL where there are GPUs, gloo for everything on CPUs. One thread per process, as under
    torchrun, unless OMP_NUM_THREADS says otherwise: the number of threads can change the last bits.
    """
    if not dist.is_initialized():
        if "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(1)
        keep_freed_memory()
        gpus = torch.cuda.is_available()
        backend = "cpu:gloo,cuda:nccl" if gpus else "gloo"
        if gpus:
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        launch = world.launch()
        members = range(launch.processes) if ranks is None else ranks
        dist.init_process_group(
            backend,
            store=PrefixStore(f"pool/{name}", launch.store),
            rank=members.index(launch.rank),
            world_size=len(members),
        )
    return dist.get_rank(), dist.get_world_size()


def device() -> torch.device:
    """Where this process computes."""
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def partition(layout: Layout, axes: Sequence[str]) -> Partition:
    """All ranks, grouped so that the ranks of a group differ in `axes` only."""
    sizes = [getattr(layout, axis) for axis in AXES]
    grid = torch.arange(layout.processes).view(sizes)
    apart = [k for k, axis in enumerate(AXES) if axis not in axes]
    together = [k for k, axis in enumerate(AXES) if axis in axes]
    width = grid.numel() // max(1, torch.Size(sizes[k] for k in apart).numel())
    rows = grid.permute(*apart, *together).reshape(-1, width)
    return tuple(tuple(int(rank) for rank in row) for row in rows)


@dataclass(frozen=True)
class Groups:
    """One process's groups under a layout. Collective to make: every process makes the same."""

    layout: Layout
    tp: dist.ProcessGroup
    pp: dist.ProcessGroup
    cp: dist.ProcessGroup
    dp: dist.ProcessGroup
    dp_cp: dist.ProcessGroup
    """Replicas of the same weights."""
    tp_pp: dist.ProcessGroup
    """Shards of one whole model."""
    ends: dist.ProcessGroup | None
    """The first and the last pipeline stage, where this process is one of them."""
    everyone: dist.ProcessGroup
    """All shards of all replicas: who shares one gradient norm."""
    alone: dist.ProcessGroup
    """This process only."""

    @staticmethod
    def make(layout: Layout) -> Groups:
        """Groups of `layout` over the whole world. Raises LayoutFailure if it doesn't fit."""
        layout.check(join_world()[1])
        made: dict[Partition, dist.ProcessGroup] = {}

        def group(*axes: str) -> dist.ProcessGroup:
            parts = partition(layout, axes)
            if parts not in made:
                made[parts] = _subgroup(parts)
            return made[parts]

        return Groups(
            layout=layout,
            tp=group("tp"),
            pp=group("pp"),
            cp=group("cp"),
            dp=group("dp"),
            dp_cp=group("dp", "cp"),
            tp_pp=group("tp", "pp"),
            ends=_ends(layout),
            everyone=group(*AXES),
            alone=group(),
        )

    @property
    def dp_rank(self) -> int:
        """Which share of the batch this process works on."""
        return self.dp.rank()

    @property
    def dp_size(self) -> int:
        """Shares of the batch."""
        return self.dp.size()

    @property
    def first_stage(self) -> bool:
        """Whether the embedding lives here."""
        return self.pp.rank() == 0

    @property
    def last_stage(self) -> bool:
        """Whether the output layer lives here."""
        return self.pp.rank() == self.pp.size() - 1

    def sum_over_data(self, values: Tensor) -> Tensor:
        """Elementwise sum of every data-parallel share's `values`, in place."""
        if self.dp.size() > 1:
            dist.all_reduce(values, group=self.dp)
        return values

    def from_last_stage(self, values: Tensor) -> Tensor:
        """The last pipeline stage's `values` on every stage; shapes must agree. In place."""
        if self.pp.size() > 1:
            last = dist.get_global_rank(self.pp, self.pp.size() - 1)
            dist.broadcast(values, src=last, group=self.pp)
        return values


def _subgroup(parts: Partition) -> dist.ProcessGroup:
    if len(parts) == 1:
        world: dist.ProcessGroup | None = dist.group.WORLD
        assert world is not None, "make joins the world"
        return world
    mine: dist.ProcessGroup | None
    mine, _ = dist.new_subgroups_by_enumeration([list(part) for part in parts])
    assert mine is not None, "a partition holds every rank"
    return mine


def _ends(layout: Layout) -> dist.ProcessGroup | None:
    if layout.pp == 1:
        return None
    pairs = [[stages[0], stages[-1]] for stages in partition(layout, ("pp",))]
    mine: dist.ProcessGroup | None
    mine, _ = dist.new_subgroups_by_enumeration(pairs)
    return mine
