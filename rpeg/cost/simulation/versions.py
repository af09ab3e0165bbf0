"""How many steps old the weights are that each batch is sampled from.

An edge of staleness with distance 1 + k lets step i start with the weights that step i - 1 - k
published. It samples from the newest that have arrived by then, which may be younger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rpeg.cost.period.graph import Edge
from rpeg.cost.simulation.run import Run


@dataclass(frozen=True)
class Lags:
    """Of the batches after the warm-up."""

    bound: int
    """The most that the pipeline allows."""
    batches: Mapping[int, int]
    """How many were so many steps old as they began."""

    @property
    def mean(self) -> float:
        """On average over batches."""
        return sum(lag * count for lag, count in self.batches.items()) / sum(self.batches.values())


def lags(run: Run) -> dict[str, Lags]:
    """By the task that reads older weights."""
    return {e.target: _lags(run, e) for e in run.graph.edges if e.why == "staleness"}


def _lags(run: Run, edge: Edge) -> Lags:
    published = np.maximum.accumulate(run.end[run.row(edge.source)])
    started = run.start[run.row(edge.target)]
    there = np.searchsorted(published, started, side="right")
    steps = np.arange(run.steps)
    lag = steps - np.minimum(there, steps)
    counts = Counter(int(value) for value in lag[run.warm :])
    return Lags(edge.distance - 1, dict(sorted(counts.items())))
