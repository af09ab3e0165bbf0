"""The entropy bonus: reward for a spread-out next-token distribution."""

from __future__ import annotations

from torch import Tensor


def entropy_bonus(entropy: Tensor, mask: Tensor, *, coef: float) -> Tensor:
    """-coef x H, with H = -sum_v p_v log p_v the entropy [samples, tokens] of each position, in
    nats.

    A3C (arXiv:1602.01783, section 4). Minimising it raises the entropy.
    """
    return -coef * entropy * mask
