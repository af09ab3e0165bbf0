"""Verifiers: answers of random duration from a pool of workers.

c workers end after N·E[t]/c, and about the 95th percentile of one answer, the last one's.
"""

from __future__ import annotations

from rpeg.cost.lengths import Distribution
from rpeg.cost.profiles.stage import Profile

TAIL = 0.95
"""The quantile that the last answer takes, about."""


def judge(answers: float, each: Distribution, workers: int) -> Profile:
    """Of so many answers by so many workers."""
    seconds = answers * each.average / workers + each.quantile(TAIL)
    return Profile(seconds, {"overhead": seconds})
