"""The profile of one stage: what it takes, why, and what it moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rpeg.cost.hardware import Machine
from rpeg.cost.profiles.attribution import Seconds, causes


@dataclass(frozen=True)
class Profile:
    """Of all processes of a stage together, on average per step."""

    seconds: float = 0.0
    breakdown: Mapping[str, float] = field(default_factory=dict[str, float])
    """Seconds by cause; they add up to `seconds`."""
    flops: float = 0.0
    """Useful ones: of the model, nothing computed again."""
    bytes: float = 0.0
    """What device memories move."""
    memory_s: float = 0.0
    """Seconds that one process's memory is busy."""
    card_s: float = 0.0
    """Seconds that its card is busy."""

    def times(self, factor: float) -> Profile:
        """How many of it per step."""
        return Profile(
            self.seconds * factor,
            {cause: seconds * factor for cause, seconds in self.breakdown.items()},
            self.flops * factor,
            self.bytes * factor,
            self.memory_s * factor,
            self.card_s * factor,
        )

    def with_seconds(self, cause: str, seconds: float) -> Profile:
        """So many seconds more, for that cause."""
        if not seconds:
            return self
        breakdown = {**self.breakdown, cause: self.breakdown.get(cause, 0.0) + seconds}
        return replace(self, seconds=self.seconds + seconds, breakdown=breakdown)

    def __add__(self, other: Profile) -> Profile:
        """One after the other."""
        names = dict.fromkeys([*self.breakdown, *other.breakdown])
        parts = {n: self.breakdown.get(n, 0.0) + other.breakdown.get(n, 0.0) for n in names}
        return Profile(
            self.seconds + other.seconds,
            parts,
            self.flops + other.flops,
            self.bytes + other.bytes,
            self.memory_s + other.memory_s,
            self.card_s + other.card_s,
        )


def attributed(formula: Seconds, machine: Machine, flops: float, processes: int) -> Profile:
    """The profile of a formula of seconds, by cause."""
    found = causes(formula, machine)
    parts = {
        "compute": found.compute,
        "memory": found.memory,
        "communication": found.communication,
        "overhead": found.overhead,
    }
    return Profile(
        sum(parts.values()),
        parts,
        flops,
        found.moved_bytes * processes,
        found.moved_bytes / machine.memory_rate,
        found.card_s,
    )


def moved(cause: str, seconds: float, moved_bytes: float = 0.0) -> Profile:
    """The profile of something that only moves bytes."""
    return Profile(seconds, {cause: seconds}, bytes=moved_bytes)
