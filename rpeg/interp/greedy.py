"""What weights say greedily, and by how much they prefer it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rpeg.interp.rectangle import Rectangle
from rpeg.interp.sampler import SamplingSettings, sample
from rpeg.interp.values import Weights
from rpeg.runtime.trajectories import Prompts, Trajectories


@dataclass(frozen=True)
class Greedy:
    """The most probable token each time, for some prompts."""

    tokens: Tensor
    """[prompts, max_tokens] int64; -1 past the end."""
    gaps: Tensor
    """[prompts, max_tokens] between the two greatest logits; two implementations may differ where
    it is within their rounding."""


@torch.no_grad()
def greedy(weights: Weights, y: Trajectories) -> Greedy:
    """One greedy completion for each prompt of y, as long as its completions may be."""
    settings = SamplingSettings(
        n=1, max_tokens=y.tokens.shape[1], temperature=0.0, top_p=1.0, stop=(), run_seed=0, seed=0
    )
    found, _ = sample(weights, Prompts(y.rows[:: y.n], y.ordinals[:: y.n]), settings)
    network, tensors = weights.model.network, weights.model.effective(weights.tensors)
    rows = Rectangle.of(found, network.tokenizer)
    best = rows.predicting(network.logits(tensors, rows.ids)).topk(2).values
    return Greedy(torch.where(found.mask, found.tokens, -1), best[..., 0] - best[..., 1])
