"""One process without a run: the host of an engine, data sets and verifiers outside training."""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from rpeg.runtime.engine.embedded import EmbeddedEngine
from rpeg.runtime.engine.weights import LatestWeights
from rpeg.runtime.groups import Groups
from rpeg.runtime.interfaces import Digested
from rpeg.runtime.layout import Layout
from rpeg.runtime.logs.clock import RunClock
from rpeg.runtime.models.saved import SavedModel
from rpeg.runtime.recordings.oracle import Oracle

T = TypeVar("T")


@dataclass
class Standalone:
    """Implements `interfaces.SeededHost` for one process that holds every batch whole."""

    root: Path
    seed: int = 0
    clock: RunClock = field(default_factory=RunClock)
    data_parallel: tuple[int, int] = (0, 1)
    leads_shard: bool = True
    oracle: Oracle = field(default_factory=Oracle)
    logged: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Sums of what was logged."""
    noted: set[str] = field(default_factory=set)
    """Topics of the notes that were printed."""

    def attach(self, name: str, part: Any) -> None:
        """Nothing is saved here."""

    def watch(self, register: Digested) -> None:
        """There are no steps."""

    def log(self, name: str, value: float, weight: float = 1.0, how: str = "mean") -> None:
        """Adds to a sum."""
        self.logged[name] += value

    def note(self, topic: str, text: str) -> None:
        """Prints the first note of each topic."""
        if topic not in self.noted:
            self.noted.add(topic)
            print(f"note: {topic}: {text}", file=sys.stderr, flush=True)

    def share_with_replicas(self, value: T) -> T:
        """There are no replicas."""
        return value


def engine_of(host: Standalone, model: SavedModel) -> EmbeddedEngine:
    """An engine that samples from a saved model. Joins a world of one, which computes with as many
    threads as a process of a run would, so that it reproduces a run's own figures.
    """
    engine = EmbeddedEngine(host, model, groups=Groups.make(Layout()))
    weights = LatestWeights(host, model)
    weights.publish(model)
    engine.swap_weights(weights)
    return engine
