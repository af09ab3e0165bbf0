"""Transfers under way: their rates change whenever one begins or ends."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rpeg.cost.simulation.network import Flow, Transfer, fair_rates

Key = tuple[int, int]
"""Step and position of the task."""


class Flows:
    """Bytes left of each transfer, between the events that change their rates."""

    def __init__(self, capacity: Mapping[str, float]) -> None:
        self._capacity = capacity
        self._flows: dict[Key, Flow] = {}
        self._left: dict[Key, float] = {}
        self._rates: dict[Key, float] = {}
        self._now = 0.0

    def __bool__(self) -> bool:
        return bool(self._flows)

    def add(self, key: Key, transfer: Transfer, alone_s: float, now: float) -> None:
        """Begins a transfer that takes `alone_s` seconds where nothing else is sent."""
        self._advance(now)
        self._flows[key] = Flow(transfer.links, transfer.bytes / alone_s)
        self._left[key] = transfer.bytes
        self._rates = fair_rates(self._flows, self._capacity)

    def next_end(self) -> float:
        """When the next one ends if nothing begins before."""
        return min(map(self._end, self._flows), default=math.inf)

    def finish(self, now: float) -> list[Key]:
        """Takes out those that have ended by now."""
        self._advance(now)
        done = [key for key in self._flows if self._end(key) <= now]
        for key in done:
            del self._flows[key], self._left[key]
        if done:
            self._rates = fair_rates(self._flows, self._capacity)
        return done

    def _end(self, key: Key) -> float:
        return self._now + self._left[key] / self._rates[key]

    def _advance(self, now: float) -> None:
        for key in self._flows:
            self._left[key] -= self._rates[key] * (now - self._now)
        self._now = now
