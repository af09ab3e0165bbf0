"""Lengths of responses: moments of a capped log-normal, and the longest of many.

The longest of n has the mean ∫ (1 - F(x)^n) dx up to the cap; the sum over a grid is exact enough.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rpeg.cost.arrays import Array

GRID = 512


@dataclass(frozen=True)
class Lengths:
    """Response lengths: log-normal with this mean and spread before the cap, in tokens."""

    mean: float
    cap: float
    spread: float = 0.6
    """Standard deviation over mean, before the cap."""

    @property
    def square(self) -> float:
        """Mean of the squared length, after the cap."""
        x, weight = self._grid()
        return float(2.0 * np.sum(x * (1.0 - self._share(x))) * weight)

    def longest(self, number: float) -> float:
        """Mean of the longest of so many."""
        x, weight = self._grid()
        return float(np.sum(1.0 - self._share(x) ** number) * weight)

    def _grid(self) -> tuple[Array, float]:
        """Midpoints from 0 to the cap, and how far apart they are."""
        weight = self.cap / GRID
        return np.asarray((np.arange(GRID) + 0.5) * weight), weight

    def _share(self, x: Array) -> Array:
        """The distribution function at x."""
        variance = math.log1p(self.spread**2)
        middle = math.log(self.mean) - variance / 2.0
        scaled = (np.log(x) - middle) / math.sqrt(2.0 * variance)
        return np.array([0.5 * (1.0 + math.erf(value)) for value in scaled])
