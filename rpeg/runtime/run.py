"""A run: one pipeline training in one folder, from `start` to `finish`, over as many launches as it
takes.

Steps count from 0 inside a program (`run.step`: finished steps) and from 1 in everything that users
see (`step 20/200`, `step-000020`): the 20th step leaves 20 finished steps behind.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from rpeg.lifetime import AGENT, die_with_parent
from rpeg.resources import resource
from rpeg.rundir import jsonl
from rpeg.rundir.exports import newest_export, record_export
from rpeg.rundir.folder import RunFolder, RunRecord
from rpeg.rundir.lock import FolderLock
from rpeg.runtime import world
from rpeg.runtime.crossing import Crossing
from rpeg.runtime.errors import LayoutFailure, ReplayFailure, RuntimeFailure, report_failures
from rpeg.runtime.groups import Groups, join_world
from rpeg.runtime.interfaces import Digested
from rpeg.runtime.layout import Layout
from rpeg.runtime.logs.clock import RunClock
from rpeg.runtime.logs.ending import ending
from rpeg.runtime.logs.logbook import Logbook
from rpeg.runtime.logs.metrics import How, StepMetrics, figures
from rpeg.runtime.logs.progress import Plan
from rpeg.runtime.logs.rollouts import describe
from rpeg.runtime.models.export import Exportable, export_model
from rpeg.runtime.numerics.memory import spare_imports
from rpeg.runtime.pools.choices import Choices
from rpeg.runtime.pools.couriers import Courier
from rpeg.runtime.pools.desk import Branch, Desk
from rpeg.runtime.pools.report import StepReport
from rpeg.runtime.pools.table import Bounds, Pools
from rpeg.runtime.recordings.oracle import Oracle
from rpeg.runtime.recordings.recording import load
from rpeg.runtime.recordings.replay import Replay
from rpeg.runtime.state import checkpoint
from rpeg.runtime.state.checkpoint import Sharded, Shared, State, Stateful
from rpeg.runtime.state.ledger import Consumed, Ledger, samples_digest
from rpeg.runtime.trajectories import Trajectories

T = TypeVar("T")


def start(
    *,
    pipeline: str,
    steps: int,
    processes: int,
    source_sha256: str,
    may_stop: bool = False,
    pools: Bounds | None = None,
    pool: str = "all",
    home: str = "all",
) -> Run:
    """Joins the pool's world and takes the run's folder. Raises RuntimeFailure if either does not
    fit. Ends the process, successfully, if the folder's run is finished: nothing is left to train.

    With `may_stop` a condition may end it early. Of several `pools`, this is the program of `pool`;
    `home` trains what is sampled from, and keeps the run's books. Reads RPEG_RUN_DIR (default
    `runs/<pipeline>`), RPEG_SEED (default 0) and RPEG_ROOT (default: the working folder), against
    which sources and export targets resolve; RPEG_REPLAY is the folder of a recording to take
    completions and rewards from (`rpeg.runtime.recordings.replay`); RPEG_VERSIONS says which
    weights of a window are sampled from (`rpeg.runtime.pools.choices`).
    """
    if "TORCHELASTIC_RUN_ID" in os.environ:
        # A launcher that is killed leaves its processes training; it may be dead by now.
        agent = os.environ.get(AGENT)
        die_with_parent(int(agent) if agent is not None else None)
    found = world.launch().processes
    report_failures()
    if found != processes:
        raise LayoutFailure(
            f"this program is for {processes} processes, {found} were started; "
            f"launch it with `torchrun --nproc-per-node={processes} ...`"
        )
    table = Pools.of(pools or {"all": (0, processes)}, mine=pool, home=home, processes=processes)
    table.check(world.process())
    join_world(pool, table.ranks(pool))
    report_failures()
    folder = RunFolder(Path(os.environ.get("RPEG_RUN_DIR", f"runs/{pipeline}")).resolve())
    wanted = RunRecord(pipeline, source_sha256, seed=_seed(), steps=steps, processes=processes)
    lock = FolderLock(folder.path)
    desk = Desk(table) if table.at_home else Branch(table)
    record = desk.open(lambda: world.on_first(lambda: _take(folder, lock, wanted)))
    if record.is_done(steps):
        if table.at_home and world.rank() == 0:
            print(folder.done(record), flush=True)
        desk.close(stopped=False)
        world.barrier()
        lock.release()
        world.exit_at_once()
        sys.exit()
    root = Path(os.environ.get("RPEG_ROOT", ".")).resolve()
    run = Run(folder, record, root=root, lock=lock, desk=desk, may_stop=may_stop)
    if "RPEG_REPLAY" in os.environ:
        _replay(run, Path(os.environ["RPEG_REPLAY"]))
    return run


def _replay(run: Run, folder: Path) -> None:
    """Has the run take completions, rewards and versions from a recording."""
    if not (folder / "recording.json").is_file():
        raise ReplayFailure(
            f"RPEG_REPLAY must be the folder of a recording, and {folder} is not one"
        )
    recording = load(folder)
    run.oracle = Replay(run, recording)
    run.record = replace(run.record, steps=run.oracle.ends(run.record.steps))
    if run.pools.several and "RPEG_VERSIONS" not in os.environ:
        run.versions = Choices.recorded_in(recording, str(folder))


def _take(folder: RunFolder, lock: FolderLock, wanted: RunRecord) -> RunRecord:
    folder.refuse_foreign()
    lock.take()
    return folder.admit(wanted)


def _seed() -> int:
    text = os.environ.get("RPEG_SEED", "0")
    if not text.isdecimal():
        raise RuntimeFailure(f"RPEG_SEED must be a whole number of at least 0, not `{text}`")
    return int(text)


class Run:
    """One process's view of the run."""

    def __init__(
        self,
        folder: RunFolder,
        record: RunRecord,
        root: Path,
        lock: FolderLock,
        desk: Desk | Branch,
        may_stop: bool = False,
    ) -> None:
        self.folder = folder
        self.record = record
        self.root = root
        self.seed = record.seed
        self.step = 0
        """Finished steps: inside the loop, the index of the step at work."""
        self.clock = RunClock()
        self.metrics = StepMetrics()
        self.data_parallel = (0, 1)
        """(index, width): which share of every batch this process holds."""
        self.leads_shard = True
        """Whether this process is the first of those that hold its share."""
        self.oracle = Oracle()
        """Where completions and rewards come from."""
        self.pools = desk.pools
        """Which processes do what."""
        self.versions = Choices.read(several=desk.pools.several)
        """Which weights of a window are sampled from."""
        self._lock = lock
        self._desk = desk
        self._couriers: list[Courier] = []
        self._making: int | None = None
        self._has_groups = False
        self._at_work = False
        self._unsettled = False
        self._state = State()
        self._stop_requested = False
        self._may_stop = may_stop
        self._keep = 3  # what `checkpoint()` means
        self._save_due = False
        self._notes: dict[str, str] = {}
        first = self.pools.at_home and world.rank() == 0
        names = self.pools.names
        self._logbook = Logbook(folder, record.pipeline, names) if first else None
        append = jsonl.append_text if self._logbook is None else self._logbook.append
        self.ledger = Ledger(folder.ledger, append)
        self._registers: list[Digested] = []
        self._published: list[str] = []
        """By register: the digest of what it held when the restored checkpoint was written."""
        self._crossings: dict[int, Crossing] = {}
        if self.pools.at_home:
            self.attach("run", self)
            self.attach("ledger", self.ledger)

    # What a program asks for.

    def groups(self, layout: Layout) -> Groups:
        """The process groups of a layout. The first layout's data-parallel width is the run's own:
        every batch is split into so many shares. See `crossing` for the others.
        """
        groups = Groups.make(layout)
        if not self._has_groups:
            self.data_parallel, self._has_groups = (groups.dp_rank, groups.dp_size), True
            mine = self.data_parallel[0]
            self.leads_shard = world.gather(mine).index(mine) == world.rank()
        return groups

    def crossing(self, groups: Groups) -> Crossing | None:
        """How rows get to the shares of a layout and back; None where they are the run's own."""
        width = groups.dp_size
        if not self._has_groups or width == self.data_parallel[1]:
            return None
        if width not in self._crossings:
            self._crossings[width] = Crossing(self.data_parallel[1], width)
        return self._crossings[width]

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

    def attach_shares(self, name: str, part: Shared) -> None:
        """Makes `part`, of which every share holds its own, belong to every checkpoint."""
        self._state.shares[name] = part

    def attach_model(self, name: str, model: Sharded) -> None:
        """Makes a trained model belong to every checkpoint."""
        self._state.models[name] = model

    def connect(self, courier: Courier) -> None:
        """Has `finish` wait for what a thread has yet to send or receive."""
        self._couriers.append(courier)

    @property
    def version(self) -> int:
        """Of weights that are published now: finished steps, the one at work included."""
        return self.step + self._at_work

    @property
    def batch_step(self) -> int:
        """The step whose batch is being made: the one at work, unless a buffer is filled ahead."""
        return self.step if self._making is None else self._making

    @contextmanager
    def making(self, step: int) -> Iterator[None]:
        """What is sampled within is for this step."""
        self._making = step
        try:
            yield
        finally:
            self._making = None

    def watch(self, register: Digested) -> None:
        """Has each step's metrics tell the digest of the weights that `register` holds."""
        self._registers.append(register)

    def log(
        self,
        name: str,
        value: float,
        weight: float = 1.0,
        how: How = "mean",
        shard: int | None = None,
    ) -> None:
        """Adds to a metric of this step; see `rpeg.runtime.logs.metrics`."""
        self.metrics.add(name, value, weight, how, shard)

    def note(self, topic: str, text: str) -> None:
        """Has process 0 print `note: topic: text` after this step, the first of each topic only."""
        self._notes.setdefault(topic, text)

    def say(self, text: str) -> None:
        """Has the first process of all print a line now: what is going on before the first step."""
        if self._logbook is not None:
            print(text, flush=True)

    def share_with_replicas(self, value: T) -> T:
        """The value of the process that leads this one's share: replicas agree. Collective."""
        if world.size() == self.data_parallel[1]:
            return value
        shares = world.gather((self.data_parallel[0], self.leads_shard, value))
        return next(v for index, leads, v in shares if leads and index == self.data_parallel[0])

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps of the run itself."""
        return {
            "stop_requested": self._stop_requested,
            "keep": self._keep,
            "checksums": self._checksums(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Puts `state_dict` back."""
        self._stop_requested = state["stop_requested"]
        self._keep = state.get("keep", self._keep)  # older checkpoints do not say
        self._published = state.get("checksums", self._published)

    # The loop.

    def restore(self) -> None:
        """Goes back to the newest checkpoint or the beginning; forgets what was logged past it.

        Nothing in the folder but its lock has changed before, nor does it where this is refused.
        """
        if isinstance(self._desk, Branch):
            self._go_on(self._desk)
            return
        restored = checkpoint.restore(self.folder.checkpoints, self._state)
        self.step = restored.step
        self._desk.resume(
            self.step,
            lambda names: checkpoint.read_parts(self.folder.checkpoints, self.step, names),
        )
        if self._logbook is not None:
            self.folder.write(self.record)
            self._logbook.rewind(self.step)
            self.ledger.rewind(self.step, self.record.attempt)
            for note in restored.notes:
                print(f"note: {note}", flush=True)
            if self.step:
                print(f"resuming {self.record.pipeline} after step {self.step}", flush=True)

    def _go_on(self, branch: Branch) -> None:
        """Goes where the home pool goes on."""
        resumed = branch.resume(self._state.parts, self._state.models)
        self.step = resumed.step
        for name, state in resumed.parts.items():
            self._state.parts[name].load_state_dict(state)
        if self.step:
            folder, models = self.folder.checkpoints, self._state.models
            notes = checkpoint.restore_models(folder, self.step, models)
            for note in notes if world.rank() == 0 else ():
                print(f"note: {note}", flush=True)

    def loop(self) -> Iterator[int]:
        """The steps that are left, the first unfinished one first; ends early after `stop`."""
        spare_imports()
        if self._logbook is not None:
            self._logbook.open(
                Plan(self.record.pipeline, self.record.steps, self.step, self._may_stop)
            )
        while not self._over:
            self.clock.begin_step(self.step)
            self._settle()
            self._at_work = True
            yield self.step
            self._at_work = False
            self._end_step()
        self._settle()

    @property
    def _over(self) -> bool:
        return self.step >= self.record.steps or self._stop_requested

    def every(self, step: int, *, steps: int, first: int = 0) -> bool:
        """Whether `every(steps=, from=)` fires in step `step`."""
        return (step + 1) % steps == 0 and step >= first

    def stop(self, metric: float, *, above: float) -> None:
        """Asks the loop to end after this step if `metric` is above the bound."""
        if metric > above:
            self._stop_requested = True

    def checkpoint(self, *, keep: int) -> None:
        """Asks for a checkpoint of the state after this step; the newest `keep` stay. In the home
        pool, for all. After the last step there is one anyway.
        """
        assert self.pools.at_home, "the home pool writes checkpoints"
        self._keep, self._save_due = keep, True

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
        samples, lengths = len(y.rows), y.sampled_lengths.tolist()
        tokens = sum(lengths)
        self.measure(y, **fields)
        self.log("length/mean", tokens / samples, samples)
        self.log("length/max", float(max(lengths)), how="max")
        self.log("finished", sum(y.finished.tolist()) / samples, samples)
        self.log("tokens", tokens, how="sum")
        step = self.step + 1
        shares = dict(world.gather((self.data_parallel[0], describe(y, fields, step))))
        if self._logbook is not None:
            self._logbook.write_rollouts(step, chain.from_iterable(shares.values()))

    def measure(self, y: Trajectories, /, **fields: Tensor) -> None:
        """Logs the means of per-response fields [samples] of trajectories."""
        for name, values in fields.items():
            self.log(f"reward/{name}", float(values.double().mean()), len(y.rows))

    def bring_home(self, value: T) -> list[T]:
        """This pool's value, after the last step, at the first process of the home pool: there that
        of every pool, its own first; elsewhere this one alone. Once a run, in all pools.
        """
        return [value, *self._desk.bring(value)]

    def finish(self) -> None:
        """Marks the run finished and lets go of its folder. Collective."""
        self.oracle.finish()
        if isinstance(self._desk, Desk) and self._logbook is not None:
            self._logbook.close()
            self.record = replace(
                self.record,
                finished_step=self.step,
                stopped=self._stop_requested,
                figures=self._logbook.last_figures(),
            )
            self.folder.write(self.record)
            if self.oracle.live:
                models = [*self._state.models, *self._desk.models]
                print(ending(self.folder, self.record, models), flush=True)
        stopped = self._stop_requested
        if stopped:  # the other pools' processes go before anything ends that they may wait for
            self._desk.close(stopped=True)
            world.barrier()
        for courier in self._couriers:
            courier.end(abandon=stopped)
        if not stopped:
            self._desk.close(stopped=False)
        for courier in self._couriers:
            courier.finish()
        world.barrier()
        self._lock.release()
        world.exit_at_once()

    def _end_step(self) -> None:
        self.oracle.end_step()
        seconds = self.clock.step_seconds()
        for name, spent in self.clock.stage_seconds().items():
            self.log(f"time/{name}", spent)
        if self.pools.several:
            self.log(f"busy/{self.pools.mine}", 1.0 - self.clock.idle_seconds() / seconds)
        mine = self._gathered()
        self.step += 1
        if isinstance(self._desk, Branch):
            self._desk.report(mine)
            self._unsettled = bool(self._state.models)
            return
        if self._logbook is not None:
            self._write(self._logbook, seconds, [mine, *self._desk.reports()])
        if self._save_due or (self._over and self.oracle.live):
            folder = self.folder.checkpoints
            if self._logbook is not None:
                self._logbook.settle()  # a checkpoint holds the ledger, and outlives a crash
            checkpoint.save(folder, self.step, self._state, self._keep, self._desk)
            self._save_due = False
        else:
            self._desk.go_on()

    def _settle(self) -> None:
        """With models in another pool than home: waits until home has finished the step before, and
        writes them if a checkpoint is of that step. Collective.
        """
        if not self._unsettled:
            return
        assert isinstance(self._desk, Branch), "home settles by itself"
        with self.clock.stage("settle", idle=True):
            saves = self._desk.saves()
        if saves:
            folder, models = self.folder.checkpoints, self._state.models
            self._desk.wrote(checkpoint.save_models(folder, self.step, models))
        self._unsettled = False

    def _gathered(self) -> StepReport:
        """What this pool's processes have to say of the step at work. Collective."""
        metrics = self.metrics.collect(self.data_parallel[0])
        done = (self.ledger.take(), self.ledger.take_dropped())
        mine = (self.clock.spans(), self._notes, self.data_parallel[0], done)
        spans, notes, indices, ledgers = zip(*world.gather(mine), strict=True)
        by_share = dict(zip(indices, ledgers, strict=True)).values()
        return StepReport(
            pool=self.pools.mine,
            metrics=metrics,
            spans=spans,
            notes=notes,
            updates=[updates for updates, _ in by_share],
            dropped=[d for _, lost in by_share for d in lost],
            state={} if self.pools.at_home else self._plain(),
        )

    def _plain(self) -> dict[str, dict[str, Any]]:
        return {name: part.state_dict() for name, part in self._state.parts.items()}

    def _write(self, logbook: Logbook, seconds: float, reports: list[StepReport]) -> None:
        """Writes what all pools did in the step that has ended, this pool's report first."""
        mine, *away = (report.updates for report in reports)
        values = figures([report.metrics for report in reports])
        if "tokens" in values:
            values["tokens_per_s"] = values["tokens"] / seconds
        for report in reports:
            self._state.away.update(report.state)
            for topics in report.notes:
                logbook.note(topics)
        dropped = [entry for report in reports for entry in report.dropped]
        self.ledger.write(self.step, self.record.attempt, mine, dropped, away)
        line = {"step": self.step, "seconds": seconds, **values}
        spans = {report.pool: report.spans for report in reports}
        by_process = [track for pool in self.pools.ranges for track in spans[pool]]
        updates = [share for report in reports for share in report.updates]
        logbook.write(line, self._digests(updates), by_process)

    def _digests(self, shares: Sequence[Sequence[Consumed]]) -> dict[str, str]:
        """What two runs that do the same agree in, beside their figures."""
        samples = samples_digest(shares)
        digests = {} if samples is None else {"hash/samples": samples}
        if self._registers:
            digests["hash/weights"] = "-".join(self._checksums())
        return digests

    def _checksums(self) -> list[str]:
        """Of what each register holds; until it is published to again, of what it held before."""
        before = [*self._published, *[""] * len(self._registers)]
        return [now.checksum or old for now, old in zip(self._registers, before, strict=False)]
