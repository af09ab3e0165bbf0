"""A run: one pipeline training in one folder, from `start` to `finish`, over as many launches as it
takes.

Steps count from 0 inside a program (`run.step`: finished steps) and from 1 in everything that users
see (`step 20/200`, `step-000020`): the 20th step leaves 20 finished steps behind.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from rpeg.lifetime import AGENT, die_with_parent
from rpeg.resources import resource
from rpeg.runtime import world
from rpeg.runtime.errors import LayoutFailure, RuntimeFailure, report_failures
from rpeg.runtime.groups import Groups, join_world
from rpeg.runtime.interfaces import WeightRegister
from rpeg.runtime.layout import Layout
from rpeg.runtime.logs.clock import RunClock
from rpeg.runtime.logs.logbook import Logbook
from rpeg.runtime.logs.metrics import How, StepMetrics
from rpeg.runtime.logs.rollouts import describe
from rpeg.runtime.models.export import Exportable, export_model, newest_export, record_export
from rpeg.runtime.recordings.oracle import Oracle
from rpeg.runtime.recordings.replay import Replay
from rpeg.runtime.state import checkpoint
from rpeg.runtime.state.checkpoint import Sharded, State, Stateful
from rpeg.runtime.state.folder import FolderLock, RunFolder, RunRecord
from rpeg.runtime.state.ledger import Consumed, Ledger, samples_digest
from rpeg.runtime.trajectories import Trajectories

T = TypeVar("T")


def start(*, pipeline: str, steps: int, processes: int, source_sha256: str) -> Run:
    """Joins the world and takes the run's folder. Raises RuntimeFailure if either does not fit.

    Reads RPEG_RUN_DIR (default `runs/<pipeline>`), RPEG_SEED (default 0) and RPEG_ROOT (default:
    the working folder), against which sources and export targets resolve; RPEG_REPLAY is the folder
    of a recording to take completions and rewards from (`rpeg.runtime.recordings.replay`).
    """
    if "TORCHELASTIC_RUN_ID" in os.environ:
        # A launcher that is killed leaves its processes training; it may be dead by now.
        agent = os.environ.get(AGENT)
        die_with_parent(int(agent) if agent is not None else None)
    _, found = join_world()
    report_failures()
    if found != processes:
        raise LayoutFailure(
            f"this program is for {processes} processes, {found} were started; "
            f"launch it with `torchrun --nproc-per-node={processes} ...`"
        )
    folder = RunFolder(Path(os.environ.get("RPEG_RUN_DIR", f"runs/{pipeline}")).resolve())
    wanted = RunRecord(pipeline, source_sha256, seed=_seed(), steps=steps, processes=processes)
    lock = FolderLock(folder)
    record = world.on_first(lambda: _take(folder, lock, wanted))
    if record.is_done(steps) and world.rank() == 0:
        print(folder.done(record), flush=True)
    run = Run(folder, record, root=Path(os.environ.get("RPEG_ROOT", ".")).resolve(), lock=lock)
    if "RPEG_REPLAY" in os.environ:
        run.oracle = Replay(run, Path(os.environ["RPEG_REPLAY"]))
    return run


def _take(folder: RunFolder, lock: FolderLock, wanted: RunRecord) -> RunRecord:
    lock.take()
    return folder.open(wanted)


def _seed() -> int:
    text = os.environ.get("RPEG_SEED", "0")
    if not text.isdecimal():
        raise RuntimeFailure(f"RPEG_SEED must be a whole number of at least 0, not `{text}`")
    return int(text)


class Run:
    """One process's view of the run."""

    def __init__(self, folder: RunFolder, record: RunRecord, root: Path, lock: FolderLock) -> None:
        self.folder = folder
        self.record = record
        self.root = root
        self.seed = record.seed
        self.step = 0
        """Finished steps: inside the loop, the index of the step at work."""
        self.done = record.is_done(record.steps)
        """An earlier launch finished this run: nothing is left to train."""
        self.clock = RunClock()
        self.metrics = StepMetrics()
        self.data_parallel = (0, 1)
        """(index, width): which share of every batch this process holds."""
        self.leads_shard = True
        """Whether this process is the first of those that hold its share."""
        self.oracle = Oracle()
        """Where completions and rewards come from."""
        self._lock = lock
        self._has_groups = False
        self._at_work = False
        self._state = State()
        self._stop_requested = False
        self._keep: int | None = None
        self._notes: dict[str, str] = {}
        self._logbook = Logbook(folder) if world.rank() == 0 else None
        self.ledger = Ledger(folder.ledger)
        self._registers: list[WeightRegister] = []
        self.attach("run", self)
        self.attach("ledger", self.ledger)

    # What a program asks for.

    def groups(self, layout: Layout) -> Groups:
        """The process groups of a layout. A program's layouts share one data-parallel width."""
        groups = Groups.make(layout)
        mine = (groups.dp_rank, groups.dp_size)
        if self._has_groups and mine != self.data_parallel:
            raise LayoutFailure(
                f"a program's models must share one data-parallel width: "
                f"{self.data_parallel[1]} and {mine[1]} were asked for; change `dp` of one of them"
            )
        self.data_parallel, self._has_groups = mine, True
        self.leads_shard = world.gather(mine[0]).index(mine[0]) == world.rank()
        return groups

    def resolve(self, source: str) -> Path:
        """The path that a path source or `run:PIPELINE/MODEL` means.

        That run is looked for beside this one's folder, then in `runs/`. `hf:NAME` means a folder
        NAME of the run's root, where there is one, before the hub's model. `models/NAME` means a
        model shipped with rpeg where the run's root has no such folder.
        """
        if source.startswith("run:"):
            return newest_export([self.folder.path.parent, Path("runs").resolve()], source)
        path = self.root / source.removeprefix("hf:")
        if path.exists() or not source.startswith("models/"):
            return path
        shipped = resource("models") / source.removeprefix("models/")
        return shipped if shipped.exists() else path

    def attach(self, name: str, part: Stateful) -> None:
        """Makes `part`, which is the same on every process, belong to every checkpoint."""
        self._state.parts[name] = part

    def attach_model(self, name: str, model: Sharded) -> None:
        """Makes a trained model belong to every checkpoint."""
        self._state.models[name] = model

    @property
    def version(self) -> int:
        """Of weights that are published now: finished steps, the one at work included."""
        return self.step + self._at_work

    def watch(self, register: WeightRegister) -> None:
        """Has each step's metrics tell the digest of the weights that `register` holds."""
        self._registers.append(register)

    def log(self, name: str, value: float, weight: float = 1.0, how: How = "mean") -> None:
        """Adds to a metric of this step; see `rpeg.runtime.logs.metrics`."""
        self.metrics.add(name, value, weight, how)

    def note(self, topic: str, text: str) -> None:
        """Has process 0 print `note: topic: text` after this step, the first of each topic only."""
        self._notes.setdefault(topic, text)

    def share_with_replicas(self, value: T) -> T:
        """The value of the process that leads this one's share: replicas agree. Collective."""
        if world.size() == self.data_parallel[1]:
            return value
        shares = world.gather((self.data_parallel[0], self.leads_shard, value))
        return next(v for index, leads, v in shares if leads and index == self.data_parallel[0])

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps of the run itself."""
        return {"stop_requested": self._stop_requested}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Puts `state_dict` back."""
        self._stop_requested = state["stop_requested"]

    # The loop.

    def restore(self) -> None:
        """Goes back to the newest checkpoint or the beginning; forgets what was logged past it."""
        if self.done:
            return
        restored = checkpoint.restore(self.folder.checkpoints, self._state)
        self.step = restored.step
        if self._logbook is not None:
            self._logbook.rewind(self.step)
            self.ledger.rewind(self.step, self.record.attempt)
            for note in restored.notes:
                print(f"note: {note}", flush=True)
            if self.step:
                print(f"resuming {self.record.pipeline} after step {self.step}", flush=True)

    def loop(self) -> Iterator[int]:
        """The steps that are left, the first unfinished one first; ends early after `stop`."""
        if self.done:
            return
        if self._logbook is not None:
            self._logbook.open(self.record.pipeline, self.record.steps, self.step)
        while self.step < self.record.steps and not self._stop_requested:
            self.clock.begin_step(self.step)
            self._at_work = True
            yield self.step
            self._at_work = False
            self._end_step()

    def every(self, step: int, *, steps: int, first: int = 0) -> bool:
        """Whether `every(steps=, from=)` fires in step `step`."""
        return (step + 1) % steps == 0 and step >= first

    def stop(self, metric: float, *, above: float) -> None:
        """Asks the loop to end after this step if `metric` is above the bound."""
        if metric > above:
            self._stop_requested = True

    def checkpoint(self, *, keep: int) -> None:
        """Asks for a checkpoint of the state after this step; the newest `keep` stay."""
        self._keep = keep

    def export(self, model: Exportable, *, to: str) -> None:
        """Writes a Hugging Face folder, and remembers it for `run:PIPELINE/MODEL`. Collective."""
        target = self.root / to
        with self.clock.stage("export"):
            export_model(model, target)
        if world.rank() == 0:
            record_export(self.folder.exports, model.name, target, self.step + 1)

    def report(self, y: Trajectories, /, **fields: Tensor) -> None:
        """Logs the step's trajectories and per-response fields [samples], the trained reward last.

        Collective.
        """
        samples = len(y.rows)
        self.measure(y, **fields)
        self.log("length/mean", float(y.lengths.double().mean()), samples)
        self.log("length/max", float(y.lengths.max()), how="max")
        self.log("finished", float(y.finished.double().mean()), samples)
        self.log("tokens", y.token_count, how="sum")
        shares = world.gather((self.data_parallel[0], describe(y, fields, self.step + 1)))
        if self._logbook is not None:
            self._logbook.write_rollouts([r for share in dict(shares).values() for r in share])

    def measure(self, y: Trajectories, /, **fields: Tensor) -> None:
        """Logs the means of per-response fields [samples] of trajectories."""
        for name, values in fields.items():
            self.log(f"reward/{name}", float(values.double().mean()), len(y.rows))

    def finish(self) -> None:
        """Marks the run finished and lets go of its folder. Collective."""
        self.oracle.finish()
        if self._logbook is not None and not self.done:
            self._logbook.close()
            self.record = replace(
                self.record,
                finished_step=self.step,
                stopped=self._stop_requested,
                figures=self._logbook.last_figures(),
            )
            self.folder.write(self.record)
        world.barrier()
        self._lock.release()

    def _end_step(self) -> None:
        self.oracle.end_step()
        seconds = self.clock.step_seconds()
        for name, spent in self.clock.stage_seconds().items():
            self.log(f"time/{name}", spent)
        values = self.metrics.merge(shard=self.data_parallel[0])
        if "tokens" in values:
            values["tokens_per_s"] = values["tokens"] / seconds
        done = (self.ledger.take(), self.ledger.take_dropped())
        mine = (self.clock.spans(), self._notes, self.data_parallel[0], done)
        spans, notes, indices, ledgers = zip(*world.gather(mine), strict=True)
        by_share = dict(zip(indices, ledgers, strict=True)).values()
        shares, dropped = [u for u, _ in by_share], [d for _, lost in by_share for d in lost]
        self.step += 1
        if self._logbook is not None:
            for topics in notes:
                self._logbook.note(topics)
            self.ledger.write(self.step, self.record.attempt, shares, dropped)
            line = {"step": self.step, "seconds": seconds, **values}
            self._logbook.write(line, self._digests(shares), spans)
        if self._keep is not None:
            checkpoint.save(self.folder.checkpoints, self.step, self._state, self._keep)
            self._keep = None

    def _digests(self, shares: Sequence[Sequence[Consumed]]) -> dict[str, str]:
        """What two runs that do the same agree in, beside their figures."""
        samples = samples_digest(shares)
        digests = {} if samples is None else {"hash/samples": samples}
        if self._registers:
            digests["hash/weights"] = "-".join(r.checksum for r in self._registers)
        return digests
