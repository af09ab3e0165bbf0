"""Verifiers: answers of random duration from a pool of workers, first come, first served.

Workers are busy until no answer waits any more. Then each has left what a renewal process leaves,
with the survival function ∫ₓ S(u) du / E[t], and the last of them ends at the mean of their
maximum, no later than the longest of all answers takes. Their work adds up to N·E[t].
"""

from __future__ import annotations

import math

import numpy as np

from rpeg.cost.lengths import Distribution
from rpeg.cost.profiles.stage import Profile

GRID = 512
"""Points of the survival function, closer where answers are short."""


def judge(answers: float, each: Distribution, workers: int) -> Profile:
    """Of so many answers by so many workers."""
    seconds = _last(answers, each, workers)
    return Profile(seconds, {"overhead": seconds})


def _last(answers: float, each: Distribution, workers: int) -> float:
    """Seconds until the last answer, on average."""
    if each.quantile(0.001) == each.quantile(0.999):
        return math.ceil(answers / workers) * each.average
    longest = each.longest(answers)
    if answers <= workers:
        return longest
    even = (np.arange(GRID) + 0.5) / GRID
    top = each.quantile(1.0)
    width = 3.0 * top * even**2 / GRID
    left = np.cumsum((each.beyond(top * even**3) * width)[::-1])[::-1]
    left = left / left[0]
    rest, last = (float(np.sum(width * share)) for share in (left, 1.0 - (1.0 - left) ** workers))
    return max(answers * each.average / workers - rest + min(last, longest), longest)
