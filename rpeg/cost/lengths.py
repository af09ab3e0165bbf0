"""Lengths of responses: moments of a capped log-normal or of a list, and the longest of many.

The longest of n has the mean ∫ (1 - F(x)^n) dx up to the cap; the sum over a grid is exact enough.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Protocol

import numpy as np
from numpy.random import Generator

from rpeg.cost.arrays import Array, smaller

GRID = 512
MOST = 2.0**31 - 1.0
"""The most that a list may hold: lengths fit in 32 bits."""


class LengthsError(ValueError):
    """A file lists no lengths; the text says why, and what a file that does looks like."""


class Distribution(Protocol):
    """Lengths in tokens, or times in seconds."""

    @property
    def average(self) -> float:
        """The mean, after the cap."""
        ...

    @property
    def square(self) -> float:
        """Mean of the squares, after the cap."""
        ...

    def longest(self, number: float) -> float:
        """Mean of the longest of so many."""
        ...

    def quantile(self, share: float) -> float:
        """What so large a share does not exceed."""
        ...

    def beyond(self, x: Array) -> Array:
        """The share that is longer than each."""
        ...

    def drawn(self, number: int, rng: Generator) -> Array:
        """So many independent ones."""
        ...


@dataclass(frozen=True)
class Lengths:
    """Response lengths: log-normal with this mean and spread before the cap, in tokens."""

    mean: float
    cap: float
    spread: float = 0.6
    """Standard deviation over mean, before the cap."""

    @property
    def average(self) -> float:
        """The mean, after the cap."""
        return self.longest(1.0)

    @property
    def square(self) -> float:
        """Mean of the squared length, after the cap."""
        if self.spread == 0.0:
            return self.quantile(0.5) ** 2
        x, weights = self._grid()
        return float(2.0 * np.sum(weights * x * (1.0 - self._share(x))))

    def longest(self, number: float) -> float:
        """Mean of the longest of so many."""
        if self.spread == 0.0:
            return self.quantile(0.5)
        x, weights = self._grid()
        return float(np.sum(weights * (1.0 - self._share(x) ** number)))

    def quantile(self, share: float) -> float:
        """What so large a share does not exceed; the cap for 1."""
        if share >= 1.0 or self.spread == 0.0:
            return self.cap if share >= 1.0 else min(self.mean, self.cap)
        variance = math.log1p(self.spread**2)
        middle = math.log(self.mean) - variance / 2.0
        return min(math.exp(NormalDist(middle, math.sqrt(variance)).inv_cdf(share)), self.cap)

    def beyond(self, x: Array) -> Array:
        """The share that is longer than each."""
        return np.where(x < self.cap, 1.0 - self._share(x), 0.0)

    def drawn(self, number: int, rng: Generator) -> Array:
        """So many independent ones."""
        variance = math.log1p(self.spread**2)
        middle = math.log(self.mean) - variance / 2.0
        return smaller(rng.lognormal(middle, math.sqrt(variance), number), self.cap)

    def _grid(self) -> tuple[Array, Array]:
        """Points from 0 to the cap, closer where they are small, and the stretch that each is for:
        a cap may be hundreds of times the mean.
        """
        even = (np.arange(GRID) + 0.5) / GRID
        return np.asarray(self.cap * even**3), np.asarray(self.cap * 3.0 * even**2 / GRID)

    def _share(self, x: Array) -> Array:
        """The distribution function at x."""
        if self.spread == 0.0:
            return np.where(x < self.mean, 0.0, 1.0)
        variance = math.log1p(self.spread**2)
        middle = math.log(self.mean) - variance / 2.0
        scaled = (np.log(x) - middle) / math.sqrt(2.0 * variance)
        return np.array([0.5 * (1.0 + math.erf(value)) for value in scaled])


@dataclass(frozen=True)
class Listed:
    """Lengths as somebody measured them, in ascending order; at least one."""

    values: Array

    @property
    def average(self) -> float:
        """Their mean."""
        return float(self.values.mean())

    @property
    def square(self) -> float:
        """Mean of their squares."""
        return float((self.values**2).mean())

    def longest(self, number: float) -> float:
        """Mean of the longest of so many drawn from them."""
        shares = (np.arange(len(self.values) + 1) / len(self.values)) ** number
        return float(self.values @ np.diff(shares))

    def quantile(self, share: float) -> float:
        """What so large a share does not exceed."""
        return float(np.quantile(self.values, min(share, 1.0)))

    def beyond(self, x: Array) -> Array:
        """The share that is longer than each."""
        return 1.0 - np.searchsorted(self.values, x, side="right") / len(self.values)

    def drawn(self, number: int, rng: Generator) -> Array:
        """So many independent ones."""
        return rng.choice(self.values, number)


def listed(path: Path, most: float = MOST) -> Listed:
    """The numbers of a file, apart by spaces or lines, capped by `most`. Raises LengthsError."""
    try:
        words = path.read_text(encoding="utf-8").split()
    except FileNotFoundError:
        text = f"there is no {path}: paths are relative to the pipeline's file"
        raise LengthsError(text) from None
    except (OSError, UnicodeDecodeError) as error:
        raise LengthsError(f"{path} can't be read as text: {error}") from error
    if not words:
        raise LengthsError(f"{path} is empty: write numbers apart by spaces or lines")
    return Listed(smaller(np.sort([_number(word, path) for word in words]), most))


def _number(word: str, path: Path) -> float:
    try:
        number = float(word)
    except ValueError:
        text = f"{path}: `{word}` is not a number: write numbers apart by spaces or lines"
        raise LengthsError(text) from None
    if not 0.0 < number <= MOST:
        raise LengthsError(f"{path}: {word}: expected above 0 and at most {MOST:.0f}")
    return number
