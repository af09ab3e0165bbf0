"""Continuous batching of one replica, sample by sample.

As many sequences run as there are slots; when one ends, the next prompt is read and joins. Between
two such events each decode step takes base(n) + slope·(tokens of context of all n), so that k steps
sum to k·base(n) + slope·(k·C + n·k·(k-1)/2) with C tokens of context at their start.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rpeg.cost.arrays import Array


@dataclass(frozen=True)
class Decoding:
    """Seconds of a replica's work."""

    base: Sequence[float]
    """Of a decode step of 1, 2, ... sequences without context; as many entries as slots."""
    slope: float
    """More of it for each token of context."""
    prompt: float
    """To read one prompt."""
    prompt_tokens: float

    @property
    def slots(self) -> int:
        """Sequences that run at once, at most."""
        return len(self.base)


def ends(lengths: Sequence[int], decoding: Decoding) -> Array:
    """Seconds until each response, in the order they are asked for, has its last token."""
    return _Replica(lengths, decoding).run()


class _Replica:
    """Decode steps are counted in `ticks`; a heap holds at which one each sequence ends."""

    def __init__(self, lengths: Sequence[int], decoding: Decoding) -> None:
        self.lengths, self.decoding = lengths, decoding
        self.ends = np.zeros(len(lengths))
        self.running: list[tuple[int, int]] = []
        self.clock, self.context, self.ticks, self.admitted = 0.0, 0.0, 0, 0

    def run(self) -> Array:
        """Until every response has ended."""
        self._admit()
        while self.running:
            self._decode(self.running[0][0] - self.ticks)
            self._retire()
            self._admit()
        return self.ends

    def _admit(self) -> None:
        while self.admitted < len(self.lengths) and len(self.running) < self.decoding.slots:
            end = self.ticks + self.lengths[self.admitted]
            heapq.heappush(self.running, (end, self.admitted))
            self.context += self.decoding.prompt_tokens
            self.clock += self.decoding.prompt
            self.admitted += 1

    def _decode(self, steps: int) -> None:
        number = len(self.running)
        met = steps * self.context + number * steps * (steps - 1) / 2
        self.clock += steps * self.decoding.base[number - 1] + self.decoding.slope * met
        self.context += number * steps
        self.ticks += steps

    def _retire(self) -> None:
        while self.running and self.running[0][0] == self.ticks:
            _, index = heapq.heappop(self.running)
            self.ends[index] = self.clock
            self.context -= self.decoding.prompt_tokens + self.lengths[index]
