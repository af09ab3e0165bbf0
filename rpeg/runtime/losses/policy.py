"""Policy losses: clipped surrogate (PPO, GRPO, DAPO, GSPO), CISPO and plain policy gradient.

Shapes, for all functions: `logprob`, `old`, `mask` and `weight` are [samples, tokens]; `advantages`
is [samples, tokens] or [samples]. Losses are to be minimised and are zero outside `mask`.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from rpeg.runtime.losses.ratio import bounded_exp

Ratio = Literal["token", "sequence"]


def per_token(field: Tensor, like: Tensor) -> Tensor:
    """A per-response field [samples] as [samples, 1]; a per-token field unchanged."""
    return field.unsqueeze(1) if field.dim() < like.dim() else field


def sequence_mean(values: Tensor, mask: Tensor) -> Tensor:
    """[samples, 1] mean of `values` over each row's mask; 0 for an empty row."""
    total = (values * mask).sum(dim=1, keepdim=True)
    return total / mask.sum(dim=1, keepdim=True).clamp(min=1)


def policy_ratio(logprob: Tensor, old: Tensor, mask: Tensor, ratio: Ratio = "token") -> Tensor:
    """pi(token) / pi_old(token), or its geometric mean over each response.

    token:    r_t = exp(logprob_t - old_t)                  (PPO, arXiv:1707.06347)
    sequence: s   = exp(mean_t (logprob_t - old_t))         (GSPO, arXiv:2507.18071, equation 7)

    Returns [samples, tokens], or [samples, 1] for `sequence`; log-ratios are bounded, see `ratio`.
    """
    difference = (logprob - old) * mask
    if ratio == "sequence":
        difference = sequence_mean(difference, mask)
    return bounded_exp(difference)


def ppo_clip(
    logprob: Tensor,
    advantages: Tensor,
    old: Tensor,
    mask: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    clip_dual: float | None = None,
    ratio: Ratio = "token",
    weight: Tensor | None = None,
) -> Tensor:
    """-min(r A, clip(r, 1 - clip_low, 1 + clip_high) A) w.

    PPO (arXiv:1707.06347, equation 7) with clip_low = clip_high, DAPO's clip-higher
    (arXiv:2503.14476) otherwise; `ratio="sequence"` is GSPO (arXiv:2507.18071, equation 5).
    `clip_dual` = c bounds the loss where A < 0: -max(min(...), c A) (dual clip, arXiv:1912.09729,
    equation 5). `weight` multiplies the loss without being differentiated (decoupled PPO,
    arXiv:2110.00641).
    """
    r = policy_ratio(logprob, old, mask, ratio)
    a = per_token(advantages, logprob)
    loss = -torch.minimum(r * a, r.clamp(1.0 - clip_low, 1.0 + clip_high) * a)
    if clip_dual is not None:
        loss = torch.where(a < 0, torch.minimum(loss, -clip_dual * a), loss)
    return _weighted(loss, weight) * mask


def cispo(
    logprob: Tensor,
    advantages: Tensor,
    old: Tensor,
    mask: Tensor,
    *,
    clip_high: float,
    weight: Tensor | None = None,
) -> Tensor:
    """-stop_gradient(min(r, 1 + clip_high)) A logprob w: every token keeps a gradient.

    MiniMax-M1 (arXiv:2506.13585, equation 4), with the upper clip only, as it was used there (verl
    with `clip_ratio_low=1`; TRL's `epsilon_high` is 1 + clip_high).
    """
    r = policy_ratio(logprob, old, mask).detach().clamp(max=1.0 + clip_high)
    return _weighted(-r * per_token(advantages, logprob) * logprob, weight) * mask


def policy_gradient(
    logprob: Tensor, advantages: Tensor, mask: Tensor, *, weight: Tensor | None = None
) -> Tensor:
    """-A logprob w (REINFORCE; Williams 1992, doi:10.1007/BF00992696)."""
    return _weighted(-per_token(advantages, logprob) * logprob, weight) * mask


def clip_fraction(
    logprob: Tensor,
    advantages: Tensor,
    old: Tensor,
    mask: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    ratio: Ratio = "token",
) -> Tensor:
    """[samples, tokens] 1 where the clip takes the gradient away, else 0: a statistic."""
    r = policy_ratio(logprob, old, mask, ratio)
    a = per_token(advantages, logprob)
    clipped = ((a > 0) & (r > 1.0 + clip_high)) | ((a < 0) & (r < 1.0 - clip_low))
    return clipped.to(logprob.dtype) * mask


def _weighted(loss: Tensor, weight: Tensor | None) -> Tensor:
    return loss if weight is None else loss * weight.detach()
