"""Batches in completion order: which prompts may start, which groups make up a batch, and what
becomes of those that grow too old. The logic alone, as in `admission`.

A group is all samples of a prompt. It starts from the weights that are there, and batch i takes
groups in the order in which they end, whichever prompt came first. So a long group is overtaken,
and may be older than the window by the time that a batch has room for it: then `overflow` says what
becomes of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from rpeg.runtime.pools.admission import Bound, Window

Overflow = Literal["wait", "resume", "drop", "truncate", "defer"]

T = TypeVar("T")


@dataclass(eq=False)
class Group(Generic[T]):
    """The samples of a prompt, from their start to their batch."""

    prompt: T
    version: int
    """Of the weights that they started from: no token is older."""


@dataclass(frozen=True)
class Taken(Generic[T]):
    """What a batch takes, and what no later one may take."""

    groups: Sequence[Group[T]]
    """The batch, in its order."""
    truncated: Sequence[Group[T]] = ()
    """Those of the batch that end where they are."""
    dropped: Sequence[Group[T]] = ()
    """Groups that are lost with their prompts."""
    deferred: Sequence[Group[T]] = ()
    """Groups whose prompts start again."""


class Flight(Generic[T]):
    """The groups of one generator that are in flight, and those that have ended and wait for a
    batch: together never more than the batches that may exist before the next version.

    Each batch has `size` groups. Under a strict bound `wait` and `truncate` leave no group behind
    that would be too old for every batch with room for it: if m groups are of version u or older,
    then batch i takes at least m - (u + k - i) size of them. `again`: a group that grew too old
    starts anew even though it could go on (`old_spans=regenerate`).
    """

    def __init__(
        self,
        window: Window,
        *,
        size: int,
        steps: int,
        bound: Bound = "strict",
        overflow: Overflow = "wait",
        again: bool = False,
    ) -> None:
        self.window = window
        self.size = size
        self.steps = steps
        self.overflow = overflow
        strict = bound == "strict"
        self._due = strict and overflow in ("wait", "truncate")
        self._drops = strict and overflow == "drop"
        self._defers = strict and (overflow == "defer" or again)
        self._waiting: deque[T] = deque()
        self._flying: list[Group[T]] = []
        self._ended: list[Group[T]] = []

    @property
    def prompts(self) -> list[T]:
        """Of everything that no batch has taken, the oldest first: to be sampled again after a
        kill.
        """
        return [*(group.prompt for group in self._outstanding), *self._waiting]

    @property
    def flying(self) -> Sequence[Group[T]]:
        """The groups that are being sampled, in the order in which they started."""
        return self._flying

    @property
    def _outstanding(self) -> list[Group[T]]:
        return sorted([*self._ended, *self._flying], key=lambda group: group.version)

    def room(self, step: int, version: int) -> int:
        """How many groups may start before batch `step`, from weights of `version`."""
        batches = self.window.batches(version, self.steps) - step
        return max(0, batches * self.size - len(self._ended) - len(self._flying))

    def lacks(self, step: int, version: int) -> int:
        """How many prompts are missing to start as many groups as there is room for."""
        return max(0, self.room(step, version) - len(self._waiting))

    def offer(self, prompts: Iterable[T]) -> None:
        """Prompts to start, behind those that wait."""
        self._waiting.extend(prompts)

    def admit(self, step: int, version: int) -> list[Group[T]]:
        """The groups that start now."""
        count = min(self.room(step, version), len(self._waiting))
        started = [Group(self._waiting.popleft(), version) for _ in range(count)]
        self._flying += started
        return started

    def end(self, group: Group[T]) -> None:
        """A group whose samples have all ended."""
        self._flying.remove(group)
        self._ended.append(group)

    def ready(self, step: int) -> bool:
        """Whether batch `step` may be taken."""
        return self._chosen(step) is not None

    def take(self, step: int) -> Taken[T]:
        """Batch `step`. Raises LookupError if it is not ready."""
        chosen = self._chosen(step)
        if chosen is None:
            raise LookupError(f"batch {step} is not ready: {len(self._ended)} groups have ended")
        truncated = [group for group in chosen if group in self._flying]
        self._forget(chosen)
        old = [g for g in self._outstanding if g.version < self.window.oldest(step + 1)]
        lost = old if self._drops or self._defers else []
        self._forget(lost)
        if self._drops:
            return Taken(chosen, dropped=lost)
        self._waiting.extendleft(group.prompt for group in reversed(lost))
        return Taken(chosen, truncated, deferred=lost)

    def _chosen(self, step: int) -> list[Group[T]] | None:
        if len(self._ended) < self.size:
            return None
        chosen = self._owed(step)
        if chosen is None:
            return None
        chosen += [group for group in self._ended if group not in chosen]
        return chosen[: self.size]

    def _owed(self, step: int) -> list[Group[T]] | None:
        """The groups that batch `step` may not leave to later ones; None while they are in flight
        and waited for.
        """
        chosen: list[Group[T]] = []
        if not self._due:
            return chosen
        open_ones = [*self._ended, *(self._flying if self.overflow == "truncate" else ())]
        versions = [group.version for group in self._outstanding]
        for version in sorted(set(versions)):
            later = (version + self.window.staleness - step) * self.size
            owed = sum(v <= version for v in versions) - later
            old = [g for g in open_ones if g.version <= version and g not in chosen]
            chosen += old[: max(0, owed - len(chosen))]
            if len(chosen) < owed:
                return None
        return chosen

    def _forget(self, groups: Sequence[Group[T]]) -> None:
        self._flying = [group for group in self._flying if group not in groups]
        self._ended = [group for group in self._ended if group not in groups]
