"""When a batch may start, which weights write it, and what is held to the bound when it trains.

The logic of bounded asynchrony alone: without processes, threads or tensors, so that one test can
run it a thousand times under a clock of its own. A generator's loop and a trainer's loop both go
over all steps in index order; version v are the weights as step v starts, and batch i is the one
that update i trains on.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from rpeg.runtime.errors import StalenessExceeded

Choice = Literal["newest", "oldest"] | Mapping[int, int]
"""Which version of a window writes a batch: the newest that is there, or the oldest that may, which
is the same one in every run; or, by step, what another run chose."""
Bound = Literal["strict", "head"]

T = TypeVar("T")


@dataclass(frozen=True)
class Window:
    """`actor@[i-k..i]`, for k steps of staleness."""

    staleness: int
    first: int = 0
    """The version that this process started from: older ones are gone after a resume."""

    def oldest(self, step: int) -> int:
        """The oldest version that may write batch `step`."""
        return max(self.first, step - self.staleness)

    def takes(self, step: int, version: int) -> bool:
        """Whether a version may write batch `step`."""
        return self.oldest(step) <= version <= step

    def batches(self, step: int, steps: int) -> int:
        """How many batches of a run of `steps` may exist before update `step`: the last of them is
        written by the version that this update replaces.
        """
        return min(step + self.staleness + 1, steps)


class Versions(Generic[T]):
    """The versions of one model's weights that a pool holds, in the order in which they came.

    `newest` holds the last one only; the others all that a later batch may need, which are at most
    k+1 since the trainer waits for the batches in between.
    """

    def __init__(self, window: Window, choice: Choice) -> None:
        self.window = window
        self.choice = choice
        self._held: deque[tuple[int, T]] = deque()

    @property
    def held(self) -> list[int]:
        """The versions that are here, oldest first."""
        return [version for version, _ in self._held]

    def arrive(self, version: int, weights: T) -> None:
        """A version that came; they come in order."""
        if self._held and version <= self._held[-1][0]:
            raise ValueError(f"version {version} came after version {self._held[-1][0]}")
        if self.choice == "newest":
            self._held.clear()
        self._held.append((version, weights))

    def ready(self, step: int, version: int | None = None) -> bool:
        """Whether batch `step` may start; or go on, with one version and no other."""
        return self._chosen(step, version) is not None

    def take(self, step: int, version: int | None = None) -> tuple[int, T]:
        """The version that writes batch `step`, and its weights; forgets those that no later batch
        needs. Raises LookupError if the batch may not start, or go on, yet.
        """
        chosen = self._chosen(step, version)
        if chosen is None:
            raise LookupError(f"no version for batch {step} among {self.held}")
        while self._held[0][0] < self.window.oldest(step + 1) and len(self._held) > 1:
            self._held.popleft()
        return chosen

    def _chosen(self, step: int, version: int | None = None) -> tuple[int, T] | None:
        legal = [held for held in self._held if self.window.takes(step, held[0])]
        if version is None and self.choice == "newest":
            return legal[-1] if legal else None
        wanted = self._wanted(step) if version is None else version
        return next((held for held in legal if held[0] == wanted), None)

    def _wanted(self, step: int) -> int:
        return self.choice[step] if isinstance(self.choice, Mapping) else self.window.oldest(step)


class Queue(Generic[T]):
    """Batches between two loops, in index order, at most `capacity` of them.

    Whoever is ahead waits: the producer while it is full, the consumer while it is empty.
    """

    def __init__(self, capacity: int, first: int = 0) -> None:
        self.capacity = capacity
        self._next = first
        self._held: deque[tuple[int, T]] = deque()

    @property
    def full(self) -> bool:
        """Whether the producer has to wait."""
        return len(self._held) >= self.capacity

    @property
    def empty(self) -> bool:
        """Whether the consumer has to wait."""
        return not self._held

    def __len__(self) -> int:
        return len(self._held)

    def put(self, step: int, batch: T) -> None:
        """The next batch. Raises ValueError for another one, or if there is no room."""
        if step != self._next or self.full:
            raise ValueError(f"batch {step} of {len(self)} in {self.capacity}, not {self._next}")
        self._held.append((step, batch))
        self._next += 1

    def take(self, step: int) -> T:
        """Batch `step`. Raises LookupError unless it is the next one, and here."""
        if self.empty or self._held[0][0] != step:
            raise LookupError(f"batch {step} is not the next of {[s for s, _ in self._held]}")
        return self._held.popleft()[1]


@dataclass
class Ahead:
    """How far one loop that generates and trains in turn works ahead of its updates."""

    window: Window
    steps: int
    made: int = 0
    """Batches that were made so far."""

    def due(self, step: int) -> Iterator[int]:
        """The batches to make before update `step`: k+1 before the first, then one each, none past
        the last step. Each counts as made once the next is asked for.
        """
        while self.made < self.window.batches(step, self.steps):
            yield self.made
            self.made += 1


@dataclass
class Certificate:
    """What was trained on, by its lag: step - version, held to the window.

    `strict` bounds every token that trains. `head` bounds admission, so that lags are counted only.
    """

    window: Window
    bound: Bound = "strict"
    tokens: Counter[int] = field(default_factory=Counter[int])
    """Lag -> trained tokens of the run so far."""

    def consume(self, step: int, lags: Mapping[int, int]) -> None:
        """The trained tokens of update `step`: lag -> how many.

        Raises StalenessExceeded if one is older than a strict bound, ValueError if it is of weights
        that are not made yet.
        """
        present = sorted(lag for lag, count in lags.items() if count)
        if present and present[0] < 0:
            raise ValueError(f"update {step} trains tokens of version {step - present[0]}")
        if present and self.bound == "strict" and present[-1] > self.window.staleness:
            raise StalenessExceeded(
                f"step {step} would train tokens {present[-1]} versions old, the pipeline allows "
                f"{self.window.staleness}: widen the window of `generate`, or publish more often"
            )
        self.tokens.update({lag: lags[lag] for lag in present})
