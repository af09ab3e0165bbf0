"""Summaries of the rewards of many completions: mean, its standard error, and pass@k."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

PASS = 1.0
"""A completion passes with at least this reward: what the built-in rules give a right answer."""


@dataclass(frozen=True)
class PassRates:
    """Rewards of n completions for each of some prompts."""

    prompts: int
    n: int
    mean: float
    """Mean reward over all completions: mean@n."""
    standard_error: float | None
    """Of the mean, over prompts: completions of one prompt are not independent. None for one
    prompt.
    """
    pass_at: dict[int, float]
    """k -> probability that at least one of k completions passes, for k = 1, 2, 4, ... and n."""


def pass_rates(rewards: Tensor) -> PassRates:
    """Summary of `rewards` [prompts, n]."""
    prompts, n = rewards.shape
    means = rewards.double().mean(dim=1)
    passed = (rewards >= PASS).sum(dim=1).tolist()
    sizes = sorted({*(2**j for j in range(n.bit_length())), n})
    return PassRates(
        prompts=prompts,
        n=n,
        mean=float(means.mean()),
        standard_error=float(means.std()) / math.sqrt(prompts) if prompts > 1 else None,
        pass_at={k: sum(pass_at_k(n, c, k) for c in passed) / prompts for k in sizes},
    )


def pass_at_k(n: int, c: int, k: int) -> float:
    """Unbiased estimate of pass@k from n completions of which c passed (arXiv:2107.03374, eq. 1).

    1 - C(n - c, k) / C(n, k): the chance that k of the n, drawn without putting back, hold one that
    passed. C is zero where fewer than k failed.
    """
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)
