"""Places for labels and boxes along a line: near to where they are wanted, yet apart."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate


def spread(wanted: Sequence[float], apart: Sequence[float], low: float, high: float) -> list[float]:
    """Places in the order of `wanted`, the sum of squares of their distances from it least.

    Args:
        wanted: where each is wanted.
        apart: the least distance of each from the one before it; that of the first is not read.
        low: the least place of the first.
        high: the greatest place of the last, if there is room.
    """
    offsets = [0.0, *accumulate(apart[1:])][: len(wanted)]
    last = max(low, high - offsets[-1]) if offsets else low
    levels = _ascending([place - offset for place, offset in zip(wanted, offsets, strict=True)])
    return [min(max(level, low), last) + o for level, o in zip(levels, offsets, strict=True)]


def _ascending(values: Sequence[float]) -> list[float]:
    """The nearest sequence that never falls, by pooling adjacent violators."""
    pools: list[tuple[float, int]] = []
    for value in values:
        mean, size = value, 1
        while pools and pools[-1][0] > mean:
            before, width = pools.pop()
            mean = (before * width + mean * size) / (width + size)
            size += width
        pools.append((mean, size))
    return [mean for mean, size in pools for _ in range(size)]
