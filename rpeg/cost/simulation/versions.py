"""How many steps old the weights are that each batch is sampled from.

An edge of staleness with distance 1 + k lets step i start with the weights that step i - 1 - k
published. It samples from the newest that have arrived by then, which may be younger. What runs
some steps ahead of its turn is for a later step, and its weights are older by so many.
"""

from __future__ import annotations

import re
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


def lags(run: Run, ahead: Mapping[str, int]) -> dict[str, Lags]:
    """By the task that reads older weights; `ahead` is by label, in steps."""
    stale = (edge for edge in run.graph.edges if edge.why == "staleness")
    return {edge.target: _lags(run, edge, ahead.get(_label(edge.target), 0)) for edge in stale}


def _lags(run: Run, edge: Edge, ahead: int) -> Lags:
    published = np.maximum.accumulate(run.end[run.row(edge.source)])
    started = run.start[run.row(edge.target)]
    there = np.searchsorted(published, started, side="right")
    turns = np.arange(run.steps)
    lag = turns - np.minimum(there, turns) + ahead
    counts = Counter(int(value) for value in lag[run.warm :])
    return Lags(edge.distance - 1 + ahead, dict(sorted(counts.items())))


def _label(task: str) -> str:
    """Of a task's part: `y 1/8` and `every_20/aime` are of `y` and `every_20`."""
    return re.split("[ /]", task, maxsplit=1)[0]
