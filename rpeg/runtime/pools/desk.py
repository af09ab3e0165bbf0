"""Coordination of pools: the home pool keeps the run's logs and checkpoints; the others send it
reports, and take their state from it.

A pool that trains models as well waits for it at the end of each step: a checkpoint is of one step.

Between the first process of the home pool and each other pool there are two wires: reports go up,
from the pool's first process; what home says goes down, to all of its processes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rpeg.rundir.folder import RunRecord
from rpeg.rundir.manifest import Written
from rpeg.runtime import world
from rpeg.runtime.pools.couriers import Receiver, Sender
from rpeg.runtime.pools.report import StepReport
from rpeg.runtime.pools.table import Pools
from rpeg.runtime.pools.wire import Wire

Parts = Mapping[str, dict[str, Any]]
"""Name -> the state of a part of a run."""


@dataclass(frozen=True)
class Resumed:
    """Where a pool goes on: finished steps, and its state as of then."""

    step: int
    parts: Parts


@dataclass(frozen=True)
class Wanted:
    """What a pool goes on with: names of its parts, and of the models that it trains."""

    parts: Sequence[str]
    models: Sequence[str]


@dataclass(frozen=True)
class Settled:
    """The home pool has finished a step, too; `save`: a checkpoint has begun."""

    save: bool


@dataclass(frozen=True)
class Over:
    """The run has ended: after its last step, or before it, as a `stop` condition asked."""

    stopped: bool


class Desk:
    """The home pool's side. Only its first process receives and sends."""

    def __init__(self, pools: Pools) -> None:
        self.pools = pools
        self._first = world.process() == pools.ranks(pools.home)[0]
        away = pools.away if self._first else []
        self._heard = {p: Receiver(f"reports of pool `{p}`", partial(_up, pools, p)) for p in away}
        self._told = {p: Sender(f"pool `{p}`", partial(_down, pools, p)) for p in away}
        self._trained: dict[str, Sequence[str]] = {}

    @property
    def models(self) -> list[str]:
        """The models that other pools train; known once they have been told where to go on."""
        return [model for models in self._trained.values() for model in models]

    def open(self, take: Callable[[], RunRecord]) -> RunRecord:
        """Takes the run's folder, and tells every pool which run this is."""
        record = take()
        self._tell(record)
        return record

    def resume(self, step: int, read: Callable[[Sequence[str]], Parts]) -> None:
        """Tells every pool where it goes on; `read` finds the parts of a checkpoint that all of
        them name.
        """
        wanted = {pool: heard.take()[0] for pool, heard in self._heard.items()}
        names = [name for each in wanted.values() for name in each.parts]
        found = read(names) if step and self._first else {}
        for pool, sender in self._told.items():
            parts = {name: found[name] for name in wanted[pool].parts} if step else {}
            sender.put(Resumed(step, parts))
            if wanted[pool].models:
                self._trained[pool] = wanted[pool].models

    def reports(self) -> list[StepReport]:
        """The next step's, of every other pool; waits until they have finished it."""
        return [report for heard in self._heard.values() for report in heard.take()]

    def bring(self, value: object) -> list[Any]:
        """What every other pool brings home after its last step; waits until they have."""
        return [brought for heard in self._heard.values() for brought in heard.take()]

    def go_on(self) -> None:
        """Lets the pools that train models begin the next step."""
        self._settle(Settled(save=False))

    def begin(self) -> None:
        """Has the pools that train models write them before they go on: a checkpoint has begun."""
        self._settle(Settled(save=True))

    def written(self) -> list[Written]:
        """What those pools wrote; waits until they have."""
        return [written for pool in self._trained for written in self._heard[pool].take()]

    def _settle(self, message: Settled) -> None:
        for pool in self._trained:
            self._told[pool].put(message)

    def close(self, *, stopped: bool) -> None:
        """Tells every pool that the run is over, and waits until they have said all."""
        self._tell(Over(stopped))
        for sender in self._told.values():
            sender.end()
        for receiver in self._heard.values():
            receiver.end(abandon=stopped)
        for courier in (*self._told.values(), *self._heard.values()):
            courier.finish()

    def _tell(self, message: object) -> None:
        for sender in self._told.values():
            sender.put(message)


class Branch:
    """The side of every other pool."""

    def __init__(self, pools: Pools) -> None:
        self.pools = pools
        me, pool = world.process(), pools.mine
        leads = me == pools.ranks(pool)[0]
        self._reports = Sender("reports", partial(_up, pools, pool)) if leads else None
        self._told = _Told("home pool", partial(_down, pools, pool))

    def open(self, take: Callable[[], RunRecord]) -> RunRecord:
        """Hears which run this is: the home pool takes the folder."""
        (record,) = self._told.take()
        assert isinstance(record, RunRecord), "home admits first"
        return record

    def resume(self, parts: Iterable[str], models: Iterable[str]) -> Resumed:
        """Where to go on, with the state of these parts; of models, which are here, the names."""
        self._send(Wanted(list(parts), list(models)))
        (resumed,) = self._told.take()
        assert isinstance(resumed, Resumed), "home resumes second"
        return resumed

    def report(self, report: StepReport) -> None:
        """Sends a finished step home, from the pool's first process."""
        self._send(report)

    def bring(self, value: object) -> list[Any]:
        """Sends a value home after the last step, from the pool's first process."""
        self._send(value)
        return []

    def saves(self) -> bool:
        """Waits until the home pool has finished the step as well: whether its models belong to a
        checkpoint now. For pools that train models, once a step.
        """
        (settled,) = self._told.take()
        assert isinstance(settled, Settled), "home settles every step"
        return settled.save

    def wrote(self, written: Written) -> None:
        """Sends home what this pool wrote of the checkpoint, from its first process."""
        self._send(written)

    def close(self, *, stopped: bool) -> None:
        """Waits until the home pool has ended the run; if it ends early, so does this process."""
        if self._reports is not None:
            self._reports.end()
            self._reports.finish()
        self._told.take()
        self._told.finish()

    def _send(self, message: object) -> None:
        if self._reports is not None:
            self._reports.put(message)


class _Told(Receiver):
    """Ends the process at once when the run stops early: this pool holds nothing that must be kept,
    and it may be in the middle of a step that nobody will finish.
    """

    _stopped = False

    def arrived(self, messages: list[Any]) -> None:
        """Notices the end of the run."""
        (message,) = messages
        self._stopped = isinstance(message, Over) and message.stopped
        super().arrived(messages)

    def ended(self) -> None:
        """Takes this process along."""
        if self._stopped:
            sys.stdout.flush()
            os._exit(0)
        super().ended()


def _up(pools: Pools, pool: str) -> tuple[Wire, list[int]]:
    home, first = pools.ranks(pools.home)[0], pools.ranks(pool)[0]
    wire = Wire(f"up/{pool}", [home, first])
    return wire, [first if world.process() == home else home]


def _down(pools: Pools, pool: str) -> tuple[Wire, list[int]]:
    home, ranks = pools.ranks(pools.home)[0], pools.ranks(pool)
    wire = Wire(f"down/{pool}", [home, *ranks])
    return wire, [*ranks] if world.process() == home else [home]
