"""Rows on their way between a run's shares and those of a model with another data-parallel width.

Batches and their fields are split over a run's shares. A model whose layout has another width takes
the rows of its own shares from the processes that hold them, and its answers go back the same way:
directly between processes, never through one of them, and not at all where the rows are there
already.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import Tensor

from rpeg.runtime import world
from rpeg.runtime.pools.rows import Shares, cut, joined, routes
from rpeg.sharding.boxes import Transfer

Value = TypeVar("Value")
"""A batch, or a field of one with rows in its first dimension."""


def shares(width: int, processes: int) -> Shares:
    """Which share of a batch each process has: data-parallel replicas are whole runs of ranks."""
    each = processes // width
    return {rank: (rank // each, width) for rank in range(processes)}


class Crossing:
    """Both ways between the shares of two widths. Everything here is collective over the world."""

    def __init__(self, run: int, model: int) -> None:
        """`run`, `model`: data-parallel widths."""
        ours, theirs = (shares(width, world.size()) for width in (run, model))
        self._there, self._back = _Way(ours, theirs), _Way(theirs, ours)
        self._last: tuple[object, object] = (None, None)

    def there(self, value: Value) -> Value:
        """A value of the run's shares, in the model's. The last batch is remembered: a step asks
        for it again and again.
        """
        if isinstance(value, Tensor):
            return self._there.move(value)
        if self._last[0] is not value:
            self._last = (value, self._there.move(value))
        moved: Any = self._last[1]
        return moved  # type: ignore[no-any-return]

    def back(self, field: Tensor) -> Tensor:
        """A field of the model's shares, in the run's."""
        return self._back.move(field)


class _Way:
    """From the shares of one width to those of another."""

    def __init__(self, source: Shares, target: Shares) -> None:
        plan = routes(source, target)
        self._units = target[0][1]
        self._mine = [route for route in plan if route.src == world.rank()]
        self._is_here = all(route.src == route.dst for route in plan)

    def move(self, value: Value) -> Value:
        """This process's new share. Raises LayoutFailure if the rows don't divide."""
        sent: list[list[tuple[int, Value]]] = [[] for _ in range(world.size())]
        for route in self._mine:
            sent[route.dst].append((_place(route), cut(value, route, self._units)))
        found = [sent[world.rank()]] if self._is_here else world.exchange(sent)
        parts = [part for _, part in sorted(chain(*found), key=lambda each: each[0])]
        whole: Value = joined(_alike(parts))
        return whole


def _place(route: Transfer) -> int:
    """Where in the new share a part begins."""
    return route.dst_box.low[0]


def _alike(parts: Sequence[Any]) -> Sequence[Any]:
    """Fields of demonstrations end where the longest of a share does: made equally wide."""
    if not all(isinstance(part, Tensor) and part.dim() == 2 for part in parts):
        return parts
    width = max(part.shape[1] for part in parts)
    return [torch.nn.functional.pad(part, (0, width - part.shape[1])) for part in parts]
