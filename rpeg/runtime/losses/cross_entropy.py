"""Cross-entropy of demonstrations."""

from __future__ import annotations

from torch import Tensor


def cross_entropy(logprob: Tensor, mask: Tensor, *, coef: float = 1.0) -> Tensor:
    """-coef x logprob of the demonstrated tokens, [samples, tokens]."""
    return -coef * logprob * mask
