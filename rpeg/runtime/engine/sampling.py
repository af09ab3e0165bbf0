"""Choosing the next token: temperature, nucleus, Gumbel noise, and the log-prob it was chosen
under.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rpeg.runtime.model_time import model_span


@dataclass(frozen=True)
class Sampling:
    """Settings of one generate."""

    n: int
    max_tokens: int
    temperature: float
    top_p: float
    stop: tuple[str, ...]
    run_seed: int
    seed: int


def distribution(logits: Tensor, temperature: float, top_p: float, banned: Tensor) -> Tensor:
    """Log-probs [rows, vocabulary] to sample from.

    Greedy sampling (temperature 0) has no distribution of its own: it reports the model's, at
    temperature 1.
    """
    scaled = logits if temperature in (0.0, 1.0) else logits / temperature
    with model_span("engine"):
        logprobs = scaled.masked_fill(banned, float("-inf")).log_softmax(dim=-1)
    return nucleus(logprobs, top_p) if top_p < 1.0 else logprobs


def nucleus(logprobs: Tensor, top_p: float) -> Tensor:
    """The most probable tokens that together reach `top_p`, renormalised (arXiv:1904.09751)."""
    ordered, index = logprobs.sort(dim=-1, descending=True, stable=True)
    before = ordered.exp().cumsum(dim=-1) - ordered.exp()
    kept = ordered.masked_fill(before >= top_p, float("-inf"))
    return torch.empty_like(logprobs).scatter_(-1, index, kept).log_softmax(dim=-1)


def choose(logprobs: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor]:
    """(tokens, their log-probs), both [rows, 1]: the largest log-prob plus noise (Gumbel-max)."""
    tokens = (logprobs if noise is None else logprobs + noise).argmax(dim=-1, keepdim=True)
    return tokens, logprobs.gather(-1, tokens)
