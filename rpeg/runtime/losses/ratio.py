"""Ratios of probabilities from differences of log-probs, kept finite."""

from __future__ import annotations

import torch
from torch import Tensor

LOG_RATIO_BOUND = 20.0
"""Log-ratios are cut here: e^20 = 4.9e8 is far beyond any clip, and e^89 is infinite in float32,
where a clipped token's gradient would be 0 x inf = NaN. Beyond the bound the gradient is 0.
"""


def bounded_exp(log_ratio: Tensor) -> Tensor:
    """exp(log_ratio), with log_ratio cut to +-LOG_RATIO_BOUND."""
    return torch.exp(log_ratio.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND))
