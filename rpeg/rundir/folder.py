"""A run's folder: where its files are, and what it says about itself in `run.json`.

runs/<pipeline>/
  program/         what `rpeg run` compiled
  run.json         pipeline, source hash, seed, attempts, finished or not
  metrics.jsonl    one object per step
  rollouts/        step-000020.jsonl: the completions of a step
  checkpoints/     step-000020/: the state after a step
  ledger.jsonl     which samples trained which model
  exports.jsonl    where exported models went
  trace.json       what each process did when, for Perfetto
  tb/              TensorBoard
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from rpeg.rundir.failures import RunFolderFailure
from rpeg.rundir.files import write_atomic
from rpeg.rundir.lock import LOCKS

PROGRAM = "program"
"""What `rpeg run` compiled, in the run's folder."""
LOGS = (".log", ".out", ".err")
"""Endings of logs that may be in the folder before its run."""
UNFINISHED = (f".{PROGRAM}-", ".run.json")
"""Prefix of the names of what a kill left half written."""


@dataclass(frozen=True)
class RunRecord:
    """The content of `run.json`."""

    pipeline: str
    source_sha256: str
    seed: int
    steps: int
    processes: int
    attempt: int = 1
    """Times that this run was started."""
    finished_step: int | None = None
    """The last step, once the run is finished."""
    stopped: bool = False
    """It finished because a `stop` condition held."""
    figures: dict[str, float | None] = field(default_factory=dict)
    """The last figures of a finished run."""

    def is_done(self, steps: int) -> bool:
        """Whether nothing is left to do of a run of `steps` steps."""
        return self.finished_step is not None and (self.stopped or self.finished_step >= steps)


@dataclass(frozen=True)
class RunFolder:
    """Paths of a run's folder."""

    path: Path

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def rollouts(self) -> Path:
        return self.path / "rollouts"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def ledger(self) -> Path:
        return self.path / "ledger.jsonl"

    @property
    def exports(self) -> Path:
        return self.path / "exports.jsonl"

    @property
    def trace(self) -> Path:
        return self.path / "trace.json"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tb"

    def refuse_foreign(self) -> None:
        """Raises RunFolderFailure if there are files that no run put there: the rule of every
        folder that rpeg writes. Writes nothing.
        """
        if not self.path.is_dir() or (self.path / "run.json").exists():
            return
        before_the_first_step = {PROGRAM, *LOCKS}
        for path in sorted(self.path.iterdir()):
            ours = path.name in before_the_first_step or path.name.startswith(UNFINISHED)
            if not ours and not _is_log(path):
                raise RunFolderFailure(
                    f"{self.path} exists and is not the folder of a run, for it holds {path.name}: "
                    "choose another folder (--run-dir, RPEG_RUN_DIR), or empty it first"
                )

    def admit(self, wanted: RunRecord) -> RunRecord:
        """The record of the run `wanted` here: one of a finished run as it was, else with this
        attempt. Raises RunFolderFailure if the folder holds another run. Writes nothing.

        For process 0 only.
        """
        found = self.find(wanted.pipeline, wanted.source_sha256, wanted.seed)
        if found is None:
            return wanted
        if found.is_done(wanted.steps):
            return found
        return replace(wanted, attempt=found.attempt + 1)

    def find(self, pipeline: str, source_sha256: str, seed: int) -> RunRecord | None:
        """The record of this run, None if no step of it was finished here. Raises RunFolderFailure
        if the folder holds another. Writes nothing.
        """
        found = self.read()
        if found is None or not self._used():
            return None
        wanted = {"pipeline": pipeline, "source hash": source_sha256, "seed": seed}
        held = (found.pipeline, found.source_sha256, found.seed)
        for (what, new), old in zip(wanted.items(), held, strict=True):
            if old != new:
                why = _OTHER if what == "source hash" else ""
                raise RunFolderFailure(
                    f"{self.path} holds a run with {what} {_short(old)}, "
                    f"this program has {_short(new)}{why}; {self._fix()}"
                )
        return found

    def read(self) -> RunRecord | None:
        """The folder's record, None in a new folder."""
        path = self.path / "run.json"
        if not path.exists():
            return None
        try:
            return RunRecord(**json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise RunFolderFailure(f"{path} cannot be read ({error}); {self._fix()}") from error

    def write(self, record: RunRecord) -> None:
        """Replaces `run.json`."""
        write_atomic(self.path / "run.json", json.dumps(asdict(record), indent=2) + "\n")

    def done(self, record: RunRecord) -> str:
        """The message of a finished run that is started again."""
        figures = "".join(f", {name} {v:.3f}" for name, v in record.figures.items() if v)
        return (
            f"already done: {record.pipeline} finished at step {record.finished_step}{figures}; "
            f"to train again {self._fix()}"
        )

    def _used(self) -> bool:
        return self.metrics.exists() or any(self.checkpoints.glob("step-*"))

    def _fix(self) -> str:
        return f"choose another folder (--run-dir, RPEG_RUN_DIR), or delete {self.path}"


_OTHER = ": the text, or an option that changes it (--set, --staleness, --correction), is another"


def _is_log(path: Path) -> bool:
    """Whether somebody has put a log of this run there: what this process prints to, or, as what
    follows `| tee` can't be told, what is called like one.
    """
    if path.name == "log" or path.suffix in LOGS:
        return path.is_file()
    for stream in (1, 2):
        with suppress(OSError):  # it is closed
            if os.path.samestat(os.fstat(stream), path.stat()):
                return True
    return False


def _short(value: object) -> str:
    return str(value)[:12]
