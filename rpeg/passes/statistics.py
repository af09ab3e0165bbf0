"""What passes count of their work: `rpeg-opt --pass-statistics` prints it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class Statistics:
    """Numbers by what they count, in the order in which they were first counted."""

    counts: dict[str, int] = field(default_factory=dict[str, int])

    def add(self, what: str, number: int) -> None:
        """Adds `number` to the count of `what`."""
        self.counts[what] = self.counts.get(what, 0) + number


Meanings = Mapping[str, str]
"""What a pass may count -> a sentence about it, for its page."""
