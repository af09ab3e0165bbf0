"""Links that several transfers cross at once: max-min fair shares by progressive filling.

All transfers speed up together until a link is full or a transfer is as fast as it is alone; those
are settled, and the others go on (Bertsekas and Gallager, Data Networks, section 6.5.2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

K = TypeVar("K")


@dataclass(frozen=True)
class Transfer:
    """Bytes that cross one or more links at one rate."""

    bytes: float
    links: tuple[str, ...]


@dataclass(frozen=True)
class Network:
    """Bytes per second of each link, and the tasks that are transfers over them."""

    capacity: Mapping[str, float] = field(default_factory=dict)
    transfers: Mapping[str, Transfer] = field(default_factory=dict)


@dataclass(frozen=True)
class Flow:
    """A transfer under way: its links, and the bytes per second that it reaches alone."""

    links: Sequence[str]
    alone: float


def fair_rates(flows: Mapping[K, Flow], capacity: Mapping[str, float]) -> dict[K, float]:
    """Bytes per second of each flow."""
    rates: dict[K, float] = {}
    left, going = dict(capacity), dict(flows)
    while going:
        shares = _even_shares(going.values(), left)
        most = {k: min([f.alone, *(shares[link] for link in f.links)]) for k, f in going.items()}
        level = min(most.values())
        for key in [key for key, rate in most.items() if rate <= level]:
            rates[key] = level
            for link in going.pop(key).links:
                left[link] = max(left[link] - level, 0.0)
    return rates


def _even_shares(flows: Collection[Flow], left: Mapping[str, float]) -> dict[str, float]:
    """What each flow would get of a link that those across it divide evenly."""
    crossing = Counter(link for flow in flows for link in flow.links)
    return {link: left[link] / number for link, number in crossing.items()}
