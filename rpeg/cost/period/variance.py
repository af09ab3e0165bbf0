"""What random times add to the period: a mean of maxima is more than the maximum of means.

The graph is run step by step with times drawn for every task, many times at once. Replications
share nothing but their seed, so that a figure repeats.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from rpeg.cost.arrays import Array
from rpeg.cost.period import cycles
from rpeg.cost.period.graph import Task, TaskGraph

STEPS = 100
REPLICATIONS = 64


def expected_period(
    graph: TaskGraph, spread: Mapping[str, float], *, steps: int = STEPS, seed: int = 0
) -> float:
    """Mean seconds per step where the times of some stages are random.

    Args:
        graph: the tasks, with their mean seconds.
        spread: standard deviation over mean of the seconds of a stage's tasks, which are drawn
            log-normal and independently; other stages take the same in every step.
        steps: how many steps the mean is over, behind as many that let the run settle.
        seed: of the draws.
    """
    run = _Run(graph, spread, np.random.default_rng(seed))
    settled = [run.step() for _ in range(steps)][-1]
    ended = [run.step() for _ in range(steps)][-1]
    return float(np.mean(ended - settled)) / steps


class _Run:
    """Replications of a run, one step after another."""

    def __init__(
        self, graph: TaskGraph, spread: Mapping[str, float], draws: np.random.Generator
    ) -> None:
        self._tasks = cycles.topological(graph)
        self._arrivals = {
            task.name: [e for e in graph.edges if e.target == task.name] for task in self._tasks
        }
        self._spread, self._draws = spread, draws
        self._kept = 1 + max((edge.distance for edge in graph.edges), default=0)
        self._ends: list[dict[str, Array]] = []

    def step(self) -> Array:
        """When the last task of the next step ends, in each replication."""
        ends: dict[str, Array] = {}
        self._ends = [ends, *self._ends[: self._kept - 1]]
        for task in self._tasks:
            ends[task.name] = self._start(task) + self._seconds(task)
        return np.asarray(np.max(np.stack(list(ends.values())), axis=0))

    def _start(self, task: Task) -> Array:
        start = np.zeros(REPLICATIONS)
        for edge in self._arrivals[task.name]:
            if edge.distance < len(self._ends):
                start = np.maximum(start, self._ends[edge.distance][edge.source])
        return start

    def _seconds(self, task: Task) -> Array | float:
        spread = self._spread.get(task.stage or "", 0.0)
        if not spread or not task.seconds:
            return task.seconds
        variance = math.log1p(spread**2)
        middle = math.log(task.seconds) - variance / 2.0
        return self._draws.lognormal(middle, math.sqrt(variance), REPLICATIONS)
