"""Verifiers: answers of random duration from a pool of workers.

Without streaming, c workers end after N·E[t]/c and about the 95th percentile of one answer. With it
they start while responses are still sampled: what is left is the last answer, and the work that
the time of sampling did not suffice for.
"""

from __future__ import annotations

from rpeg.cost.lengths import Distribution
from rpeg.cost.profiles.stage import Profile

TAIL = 0.95
"""The quantile that the last answer takes, about."""


def judge(answers: float, each: Distribution, workers: int, covered_s: float = 0.0) -> Profile:
    """Of so many answers by so many workers, after `covered_s` of streaming."""
    work = answers * each.average / workers
    seconds = max(work - covered_s, 0.0) + each.quantile(TAIL)
    return Profile(seconds, {"overhead": seconds})
