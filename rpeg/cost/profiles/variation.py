"""How much the seconds of a stage vary from step to step: the longest response is never the same.

A batch of samples takes as long as its longest response at least, so its time has about the spread
of the longest of so many: a standard deviation is the range of the middle half over 1.349, as of a
normal distribution. A cap that most batches reach leaves none.
"""

from __future__ import annotations

from rpeg.cost.lengths import Distribution
from rpeg.cost.profiles.setting import Setting
from rpeg.ir.ops.sampling import GenerateOp

MIDDLE_HALF = 1.349
"""Interquartile range of a normal distribution, in standard deviations."""


def spreads(setting: Setting) -> dict[str, float]:
    """Standard deviation over mean of the seconds of each stage that samples."""
    samplers = {n: op for n, op in setting.stages.items() if isinstance(op, GenerateOp)}
    rows = {name: setting.workload.rows(op.trajectories) for name, op in samplers.items()}
    return {name: longest_spread(held.response, held.number) for name, held in rows.items()}


def longest_spread(lengths: Distribution, number: float) -> float:
    """Standard deviation over mean of the longest of so many."""
    low, high = (lengths.quantile(share ** (1.0 / number)) for share in (0.25, 0.75))
    return (high - low) / MIDDLE_HALF / lengths.longest(number)
