"""What surrounds a pipeline: the folder that sources resolve against, and the run's bookkeeping."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from rpeg.resources import found
from rpeg.rundir.exports import newest_export
from rpeg.runtime.recordings.oracle import Oracle

T = TypeVar("T")


class NoClock:
    """A clock for runs whose time means nothing."""

    def now(self) -> float:
        """Always the beginning."""
        return 0.0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Runs the body."""
        yield


@dataclass
class World:
    """One process that holds every batch whole: the host of its data sets and verifiers."""

    root: Path
    clock: NoClock = field(default_factory=NoClock)
    data_parallel: tuple[int, int] = (0, 1)
    leads_shard: bool = True
    oracle: Oracle = field(default_factory=Oracle)
    logged: dict[str, float] = field(default_factory=dict)
    """What verifiers report in the current step, summed."""
    notes: dict[str, str] = field(default_factory=dict)
    """The first remark of each topic."""

    def resolve(self, source: str) -> Path:
        """The folder that a model's source means: of `run:PIPELINE/MODEL` the newest export in
        `runs/`; of `hf:NAME` a folder NAME, if there is one; of `models/NAME` a shipped one, where
        there is none here.
        """
        if source.startswith("run:"):
            return newest_export([self.root / "runs"], source)
        if source.startswith("hf:"):
            return self.root / source.removeprefix("hf:")
        return found(self.root, source)

    def attach(self, name: str, part: Any) -> None:
        """Nothing is saved: a run starts at step 0."""

    def log(self, name: str, value: float, weight: float = 1.0, how: str = "mean") -> None:
        """Adds to a figure of this step."""
        self.logged[name] = self.logged.get(name, 0.0) + value

    def note(self, topic: str, text: str) -> None:
        """Keeps the first remark of each topic."""
        self.notes.setdefault(topic, text)

    def share_with_replicas(self, value: T) -> T:
        """There are no replicas."""
        return value

    def take_logged(self) -> dict[str, float]:
        """The figures of the step that ends."""
        logged, self.logged = self.logged, {}
        return logged
