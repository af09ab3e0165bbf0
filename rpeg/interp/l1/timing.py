"""What an execution leaves open, and an oracle decides: who moves next, which chunk comes first."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from xdsl.ir import Operation


@dataclass(frozen=True)
class Task:
    """An operation in a step."""

    step: int
    op: Operation


class Timing(Protocol):
    """Says what comes first."""

    def next(self, ready: Sequence[Task]) -> int:
        """Which of the tasks that could run now does: an index."""
        ...

    def arrivals(self, chunks: int) -> Sequence[int]:
        """The order in which so many chunks complete."""
        ...


class InOrder:
    """The order of the text, step by step."""

    def next(self, ready: Sequence[Task]) -> int:
        """The first of the earliest step."""
        return min(range(len(ready)), key=lambda k: ready[k].step)

    def arrivals(self, chunks: int) -> Sequence[int]:
        """The order of the samples."""
        return range(chunks)


class Shuffled:
    """Any order, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)

    def next(self, ready: Sequence[Task]) -> int:
        """Any."""
        return self._draw.randrange(len(ready))

    def arrivals(self, chunks: int) -> Sequence[int]:
        """Any permutation."""
        return self._draw.sample(range(chunks), chunks)
