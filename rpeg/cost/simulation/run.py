"""What a simulation came to: when each task of each step ran, and figures made of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from rpeg.cost.arrays import Array
from rpeg.cost.period.graph import Task, TaskGraph

BATCHES = 10
"""Batches of consecutive steps whose means tell how exact the period is."""


class Span(NamedTuple):
    """One task of one step, in seconds from the start of the run."""

    task: Task
    step: int
    start: float
    end: float


@dataclass(frozen=True)
class Run:
    """Starts and ends in seconds: one row per task, in the graph's order, one column per step."""

    graph: TaskGraph
    start: Array
    end: Array

    warm: int = 0
    """Steps at the start that don't count: they fill the pipeline."""

    @property
    def steps(self) -> int:
        """All of them."""
        return int(self.end.shape[1])

    @cached_property
    def done(self) -> Array:
        """When each step and all before it have ended."""
        return np.asarray(np.maximum.accumulate(self.end.max(axis=0)))

    @property
    def counted(self) -> tuple[float, float]:
        """From when to when the steps that count ran."""
        return float(self.done[self.warm - 1]) if self.warm else 0.0, float(self.done[-1])

    @property
    def step_seconds(self) -> Array:
        """From one step's end to the next one's, of those that count."""
        return np.asarray(np.diff(self.done[self.warm :], prepend=self.counted[0]))

    @property
    def period(self) -> float:
        """Mean seconds of a step."""
        return float(self.step_seconds.mean())

    @property
    def error(self) -> float | None:
        """Standard error of the period, by means of batches: steps are not independent. None of one
        step, which does not tell.
        """
        batches = np.array_split(self.step_seconds, min(BATCHES, len(self.step_seconds)))
        means = np.array([batch.mean() for batch in batches])
        return float(means.std(ddof=1) / math.sqrt(len(means))) if len(means) > 1 else None

    @property
    def latency(self) -> float:
        """Mean seconds from a step's first start to its last end."""
        whole = self.end.max(axis=0) - self.start.min(axis=0)
        return float(whole[self.warm :].mean())

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {task.name: row for row, task in enumerate(self.graph.tasks)}

    def row(self, task: str) -> int:
        """The row of a task."""
        return self._rows[task]

    def seconds(self, task: str) -> float:
        """Mean seconds of a task, of the steps that count."""
        took = self.end[self.row(task)] - self.start[self.row(task)]
        return float(took[self.warm :].mean())

    @property
    def means(self) -> TaskGraph:
        """The graph with what each task took on average."""
        tasks = (replace(task, seconds=self.seconds(task.name)) for task in self.graph.tasks)
        return TaskGraph(tuple(tasks), self.graph.edges)

    def spans(self) -> Iterator[Span]:
        """Every task of every step, a task at a time."""
        for row, task in enumerate(self.graph.tasks):
            for step, (start, end) in enumerate(zip(self.start[row], self.end[row], strict=True)):
                yield Span(task, step, float(start), float(end))
