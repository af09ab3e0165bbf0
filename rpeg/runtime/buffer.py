"""Trajectories between engine and trainer of the same processes: a bounded queue of whole batches.

With a window of versions the engine works ahead: before update i it makes the batches up to step i
+ k, from the current weights, so that each is as old as the window allows. Every run keeps this
order, so that runs repeat bit for bit; what is in the queue belongs to checkpoints.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rpeg.rundir.ahead import buffer_part
from rpeg.runtime.errors import BufferFailure
from rpeg.runtime.lag import LagBound, OldSpans
from rpeg.runtime.pools.admission import Ahead, Bound, Window
from rpeg.runtime.recordings import plain
from rpeg.runtime.selection import join
from rpeg.runtime.trajectories import Trajectories

if TYPE_CHECKING:
    from rpeg.runtime.run import Run

Batch = tuple[Trajectories, tuple[Tensor, ...]]
"""This process's share of one step's trajectories, and their fields [samples, ...]."""


class TrajectoryBuffer:
    """First in, first out, of at most `capacity` batches.

    `max_lag`, `bound` and `old_spans` are those of `LagBound`.
    """

    def __init__(
        self,
        run: Run,
        name: str,
        *,
        capacity: int,
        max_lag: int,
        bound: Bound,
        old_spans: OldSpans | None = None,
    ) -> None:
        self.run = run
        self.name = name
        self.capacity = capacity
        self.lag = LagBound(max_lag, bound, old_spans)
        self._queue: deque[Batch] = deque()
        reach = max_lag if run.versions.rule == "oldest" else 0
        self._ahead = Ahead(Window(reach), run.record.steps)
        if capacity > 1:
            run.attach_shares(buffer_part(name), self)

    def ahead(self, step: int) -> Iterator[int]:
        """The steps whose batches are to be made before update `step`, each put before the next:
        up to `max_lag` ahead, none past the run's last; with the newest versions, just that one.
        """
        self._ahead.made = max(self._ahead.made, step)
        for made in self._ahead.due(step):
            held = len(self._queue)
            with self.run.making(made):
                yield made
            if len(self._queue) == held:
                raise BufferFailure(f"`{self.name}`: nothing was put for step {made + 1}")

    def put(self, y: Trajectories, *fields: Tensor) -> None:
        """Adds the batch of the next step.

        Raises BufferFailure if the buffer is full, DataFailure for rows that no checkpoint holds.
        """
        if len(self._queue) == self.capacity:
            raise BufferFailure(
                f"`{self.name}`: the buffer is full, it holds {self.capacity}: take one first"
            )
        self._queue.append((_portable(y) if self.capacity > 1 else y, fields))

    def take(self, *, step: int) -> tuple[Trajectories, *tuple[Tensor, ...]]:
        """The oldest batch, as update `step` trains on it; see `LagBound.consumed`.

        Raises BufferFailure if there is none.
        """
        if not self._queue:
            raise BufferFailure(f"`{self.name}`: the buffer is empty, put a batch first")
        y, fields = self._queue.popleft()
        return self.lag.consumed(self.run, y, step), *fields

    # What a checkpoint keeps.

    @property
    def saves(self) -> tuple[int, int] | None:
        """(index, width) of this process's share, where this process writes it."""
        return self.run.data_parallel if self.run.leads_shard else None

    def state_dict(self) -> dict[str, Any]:
        """The batches of this process's share."""
        return {"made": self._ahead.made, "batches": [_packed(batch) for batch in self._queue]}

    def load_shares(self, states: Sequence[dict[str, Any]]) -> None:
        """Puts back what every share saved, in their order; this process takes its own of it."""
        if not states:  # written by a plan whose pools have no buffer: what was ahead is made again
            return
        index, width = self.run.data_parallel
        shares = [[_unpacked(batch) for batch in state["batches"]] for state in states]
        whole = [_joined(parts) for parts in zip(*shares, strict=True)]
        self._queue = deque(_share(batch, index, width) for batch in whole)
        self._ahead.made = states[0]["made"]


def _portable(y: Trajectories) -> Trajectories:
    """The same, with rows that a checkpoint gives back unchanged."""
    rows = {id(row): plain.portable_row(row) for row in y.rows}
    return replace(y, rows=tuple(rows[id(row)] for row in y.rows))


def _packed(batch: Batch) -> dict[str, Any]:
    y, fields = batch
    return {"plain": plain.rest(y), "tensors": plain.tensors(y), "fields": list(fields)}


def _unpacked(state: dict[str, Any]) -> Batch:
    return plain.trajectories(state["plain"], state["tensors"]), tuple(state["fields"])


def _joined(parts: Sequence[Batch]) -> Batch:
    fields = zip(*(fields for _, fields in parts), strict=True)
    return join([y for y, _ in parts]), tuple(torch.cat(list(each)) for each in fields)


def _share(batch: Batch, index: int, width: int) -> Batch:
    """One of `width` equal shares, of whole groups."""
    y, fields = batch
    rows = torch.arange(len(y.rows)).view(width, -1)[index]
    return y.select(rows), tuple(field[rows] for field in fields)
