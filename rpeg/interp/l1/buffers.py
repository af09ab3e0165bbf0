"""Buffers while they run: bounded queues of groups, and what waits at their ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rpeg.interp.l1.rows import Chunks, concatenated, count, select
from rpeg.ir.types.buffer import BufferType
from rpeg.runtime.trajectories import Trajectories

Values = tuple[object, ...]
"""Trajectories of one prompt, then their fields."""


@dataclass(frozen=True)
class Group:
    """What lies in a buffer for one prompt."""

    step: int
    """In which it was pushed."""
    values: Values


class Queue:
    """The groups of one buffer, oldest first."""

    def __init__(self, kind: BufferType) -> None:
        self.kind = kind
        self._groups: deque[Group] = deque()
        self.dropped = 0
        """Groups that waited for too long."""

    @property
    def room(self) -> int:
        """How many groups more it takes."""
        return self.kind.groups - len(self._groups)

    def push(self, group: Group) -> None:
        """Takes a group; there is room."""
        assert self.room > 0
        self._groups.append(group)

    def has(self, groups: int, step: int) -> bool:
        """Whether so many groups can leave in a step; drops those that are too old for it."""
        fresh = [g for g in self._groups if step - g.step <= self.kind.steps]
        self.dropped += len(self._groups) - len(fresh)
        self._groups = deque(fresh)
        return len(fresh) >= groups

    def pop(self, groups: int) -> list[object]:
        """The oldest groups, as one batch."""
        return _batch([self._groups.popleft().values for _ in range(groups)])

    def __str__(self) -> str:
        return f"`{self.kind.title}`, which holds {len(self._groups)} of {self.kind.groups} groups"


def groups_of(values: Sequence[object]) -> list[Values]:
    """A batch group by group; one that comes in chunks in the order of the chunks."""
    order = _arrival(values)
    whole = [v.join() if isinstance(v, Chunks) else v for v in values]
    y = whole[0]
    assert isinstance(y, Trajectories), "a buffer's first row is trajectories"
    return [tuple(select(v, rows) for v in whole) for rows in order.view(-1, y.n)]


def _arrival(values: Sequence[object]) -> Tensor:
    """The samples in the order in which they come."""
    chunked = next((v for v in values if isinstance(v, Chunks)), None)
    if chunked is not None:
        return torch.cat([chunk.rows for chunk in chunked.parts])
    first = values[0]
    assert isinstance(first, Trajectories)
    return torch.arange(count(first))


def _batch(groups: Sequence[Values]) -> list[object]:
    y, *fields = zip(*groups, strict=True)
    joined = [torch.cat([v for v in held if isinstance(v, Tensor)]) for held in fields]
    return [concatenated([part for part in y if isinstance(part, Trajectories)]), *joined]
