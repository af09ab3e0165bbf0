"""Trajectories between engine and trainer: a bounded queue that knows how old their tokens are."""

from __future__ import annotations

import queue
from typing import TYPE_CHECKING, Literal

from torch import Tensor

from rpeg.runtime.errors import StalenessExceeded
from rpeg.runtime.trajectories import Trajectories

if TYPE_CHECKING:
    from rpeg.runtime.run import Run


class TrajectoryBuffer:
    """First in, first out; full, it makes the producer wait.

    The lag of a token is step - version when update `step` consumes it. Bound `strict`: no trained
    token's lag exceeds `max_lag`. Bound `head`: `max_lag` bounds admission elsewhere; lag is
    reported.
    """

    def __init__(
        self, run: Run, *, capacity: int, max_lag: int, bound: Literal["strict", "head"]
    ) -> None:
        self.run = run
        self.max_lag = max_lag
        self.bound = bound
        self._queue: queue.Queue[tuple[Trajectories, tuple[Tensor, ...]]] = queue.Queue(capacity)

    def put(self, y: Trajectories, *fields: Tensor) -> None:
        """Adds one batch; waits while the buffer is full."""
        self._queue.put((y, fields))

    def take(self, *, step: int) -> tuple[Trajectories, *tuple[Tensor, ...]]:
        """The oldest batch, for update `step`; waits while there is none.

        Raises StalenessExceeded if a trained token is older than the bound allows.
        """
        y, fields = self._queue.get()
        lags = step - y.versions[y.mask]
        if lags.numel():
            self._check(int(lags.max()), step)
            self.run.log("lag/mean", float(lags.double().mean()), lags.numel())
            self.run.log("lag/max", float(lags.max()), how="max")
        return y, *fields

    def _check(self, lag: int, step: int) -> None:
        if self.bound == "strict" and lag > self.max_lag:
            raise StalenessExceeded(
                f"step {step} would train tokens {lag} versions old, the pipeline allows "
                f"{self.max_lag}: widen the window of `generate`, or publish more often"
            )
