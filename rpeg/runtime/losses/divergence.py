"""Divergences between the next-token distributions of a student and a teacher, in full.

`distill` estimates the two extremes from the sampled token alone; these need both models' logits.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def divergence(student: Tensor, teacher: Tensor, mask: Tensor, *, beta: float = 0.5) -> Tensor:
    """Generalised Jensen-Shannon divergence of logits [samples, tokens, vocabulary], in nats.

    beta KL(T || M) + (1 - beta) KL(S || M), with the mixture M = beta T + (1 - beta) S; its limits
    are taken at the ends: beta = 0 is the forward KL(T || S), beta = 1 the reverse KL(S || T).
    Returns [samples, tokens], zero outside `mask`. Raises ValueError unless 0 <= beta <= 1.

    Generalised knowledge distillation (arXiv:2306.13649, equation 1).
    """
    if not 0.0 <= beta <= 1.0:
        raise ValueError(f"beta={beta} isn't between 0 (forward KL) and 1 (reverse KL)")
    s, t = student.log_softmax(dim=-1), teacher.log_softmax(dim=-1)
    if beta == 0.0:
        return _kl(t, s) * mask
    if beta == 1.0:
        return _kl(s, t) * mask
    mixture = torch.logaddexp(t + math.log(beta), s + math.log1p(-beta))
    return (beta * _kl(t, mixture) + (1.0 - beta) * _kl(s, mixture)) * mask


def _kl(p: Tensor, q: Tensor) -> Tensor:
    """KL(p || q) of log-probs over the last dimension."""
    return (p.exp() * (p - q)).sum(dim=-1)
