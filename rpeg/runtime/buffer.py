"""Trajectories between engine and trainer: a bounded queue that knows how old their tokens are."""

from __future__ import annotations

import queue
from typing import TYPE_CHECKING, Literal

from torch import Tensor

from rpeg.runtime.lag import LagBound
from rpeg.runtime.trajectories import Trajectories

if TYPE_CHECKING:
    from rpeg.runtime.run import Run


class TrajectoryBuffer:
    """First in, first out; full, it makes the producer wait."""

    def __init__(
        self, run: Run, *, capacity: int, max_lag: int, bound: Literal["strict", "head"]
    ) -> None:
        self.run = run
        self._bound = LagBound(max_lag, bound)
        self._queue: queue.Queue[tuple[Trajectories, tuple[Tensor, ...]]] = queue.Queue(capacity)

    def put(self, y: Trajectories, *fields: Tensor) -> None:
        """Adds one batch; waits while the buffer is full."""
        self._queue.put((y, fields))

    def take(self, *, step: int) -> tuple[Trajectories, *tuple[Tensor, ...]]:
        """The oldest batch, for update `step`; waits while there is none.

        Raises StalenessExceeded if a trained token is older than the bound allows.
        """
        y, fields = self._queue.get()
        self._bound.consume(self.run, y, step)
        return y, *fields
