"""The clipped squared error of a critic."""

from __future__ import annotations

import torch
from torch import Tensor


def value_loss(
    values: Tensor, returns: Tensor, old: Tensor, mask: Tensor, *, clip: float, coef: float = 1.0
) -> Tensor:
    """coef / 2 x max((v - R)^2, (old + clamp(v - old, -clip, clip) - R)^2), all [samples, tokens].

    PPO's clipped value objective as in its reference code (arXiv:2005.12729, section 3).
    """
    clipped = old + (values - old).clamp(-clip, clip)
    worst = torch.maximum((values - returns).square(), (clipped - returns).square())
    return 0.5 * coef * worst * mask
