"""What varies from step to step: lengths of responses, and what follows from them.

Each stage is scaled by what its draw takes over what the closed form expects. A stage's draws
depend on seed, step and stage only, so that one more stage leaves those of the others alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol
from zlib import crc32

import numpy as np
from numpy.random import Generator

from rpeg.cost.arrays import Array
from rpeg.cost.lengths import Distribution
from rpeg.cost.period.graph import Task, TaskGraph
from rpeg.cost.simulation.batching import Decoding, ends
from rpeg.cost.simulation.queues import served


@dataclass(frozen=True)
class Batch:
    """The responses that one step sampled."""

    lengths: Array
    """Tokens of each."""
    ends: Array
    """Seconds from the start of sampling to each one's last token."""


class Engine(Protocol):
    """How long replicas take."""

    def ends(self, lengths: Array) -> Array:
        """Seconds until each response has its last token."""
        ...


@dataclass(frozen=True)
class Continuous:
    """Replicas that refill as sequences end, each with an even share in order."""

    replicas: int
    decoding: Decoding

    def ends(self, lengths: Array) -> Array:
        """Seconds until each response has its last token."""
        shares = np.array_split(lengths.astype(np.int64), self.replicas)
        return np.concatenate([ends(share.tolist(), self.decoding) for share in shares])


@dataclass(frozen=True)
class Chunks:
    """Replicas that take so many responses at a time, and wait for the longest of them."""

    replicas: int
    size: int
    seconds: Callable[[Array], Array]
    """Of chunks whose longest response is so long."""

    def ends(self, lengths: Array) -> Array:
        """Seconds until each response's chunk has ended."""
        shares = np.array_split(lengths, self.replicas)
        return np.concatenate([self._ends(share) for share in shares])

    def _ends(self, lengths: Array) -> Array:
        starts = np.arange(0, len(lengths), self.size)
        count = np.diff(starts, append=len(lengths))
        took = self.seconds(np.maximum.reduceat(lengths, starts))
        return np.repeat(np.cumsum(took), count)


class Stage(Protocol):
    """A stage whose seconds vary."""

    def factors(self, parts: int, batches: dict[str, Batch], rng: Generator) -> Array:
        """Seconds over those expected, of each of its tasks; one that samples adds its batch."""
        ...


@dataclass(frozen=True)
class Sampling:
    """Generation of so many responses."""

    name: str
    number: int
    length: Distribution
    engine: Engine
    expected_s: float

    def factors(self, parts: int, batches: dict[str, Batch], rng: Generator) -> Array:
        """Each part ends with the last response of its share, in the order in which they end."""
        lengths = np.maximum(np.rint(self.length.drawn(self.number, rng)), 1.0)
        batch = Batch(lengths, self.engine.ends(lengths))
        batches[self.name] = batch
        last = [part[-1] for part in np.array_split(np.sort(batch.ends), parts)]
        return np.diff(last, prepend=0.0) * parts / self.expected_s


@dataclass(frozen=True)
class Passing:
    """A pass over sampled tokens: packed batches take time in proportion."""

    source: str
    prompt: float
    """Tokens of a prompt, on average."""
    response: float

    def factors(self, parts: int, batches: dict[str, Batch], rng: Generator) -> Array:
        """Tokens over those expected."""
        each = self.prompt + batches[self.source].lengths.mean()
        return np.full(parts, each / (self.prompt + self.response))


@dataclass(frozen=True)
class Answering:
    """Workers that verify each response, first come, first served."""

    source: str
    each: Distribution
    """Seconds of an answer."""
    workers: int
    expected_s: float

    def factors(self, parts: int, batches: dict[str, Batch], rng: Generator) -> Array:
        """Until the last answer of each part of the responses."""
        drawn = self.each.drawn(len(batches[self.source].lengths), rng)
        taken = [self._together(answers) for answers in np.array_split(drawn, parts)]
        return np.array(taken) * parts / self.expected_s

    def _together(self, answers: Array) -> float:
        return float(served(answers.tolist(), self.workers).max())


@dataclass(frozen=True)
class Draws:
    """Seconds of a graph's tasks, step by step."""

    graph: TaskGraph
    stages: Mapping[str, Stage]
    every: Mapping[str, int]
    """Stages that run in the last of so many steps only; expected is a part of it in each."""
    seed: int

    def __call__(self, step: int) -> dict[str, float]:
        """By task, of the stages that vary."""
        batches: dict[str, Batch] = {}
        seconds: dict[str, float] = {}
        for name, tasks in self._tasks.items():
            factors = self._factors(name, len(tasks), step, batches)
            seconds |= {t.name: t.seconds * float(f) for t, f in zip(tasks, factors, strict=True)}
        return seconds

    @cached_property
    def _tasks(self) -> dict[str, list[Task]]:
        """The tasks of each stage that varies, in the order of the step."""
        found: dict[str, list[Task]] = {}
        for task in self.graph.tasks:
            if task.stage in self.stages or task.stage in self.every:
                found.setdefault(task.stage or "", []).append(task)
        return found

    def _factors(self, name: str, parts: int, step: int, batches: dict[str, Batch]) -> Array:
        every = self.every.get(name, 1)
        if (step + 1) % every:
            return np.zeros(parts)
        if name not in self.stages:
            return np.full(parts, float(every))
        rng = np.random.default_rng([self.seed, step, crc32(name.encode())])
        return every * self.stages[name].factors(parts, batches, rng)
