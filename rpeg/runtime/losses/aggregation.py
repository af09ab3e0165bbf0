"""From per-token losses to one number: weights per token, from totals over the whole minibatch.

The loss of an optimizer step is sum(token_weights x per-token loss) over every token of every
process and micro-batch. The totals are counted once over all of them, so that neither the
data-parallel width nor the split into micro-batches changes the number.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

Aggregation = str | tuple[str, int]
"""`token_mean`, `seq_mean_token_mean`, `seq_mean_token_sum`, or `("constant", tokens)`; of losses
of pairs `pair_mean`.
"""


@dataclass(frozen=True)
class Totals:
    """What one optimizer step trains on, over all processes."""

    tokens: int
    """Unmasked tokens."""
    sequences: int
    """Responses with at least one unmasked token."""


def loss_weights(mask: Tensor, agg: Aggregation, totals: Totals) -> Tensor:
    """The weight of each number of a loss: `token_weights`, or for pairs 1 / pairs each, [pairs].

    Raises ValueError for an unknown aggregation.
    """
    if agg == "pair_mean":
        pairs = max(totals.sequences // 2, 1)
        return torch.full((len(mask) // 2,), 1.0 / pairs, device=mask.device)
    return token_weights(mask, agg, totals)


def token_weights(mask: Tensor, agg: Aggregation, totals: Totals) -> Tensor:
    """[samples, tokens] float32 weights, zero outside `mask`.

    token_mean          1 / tokens                      DAPO, arXiv:2503.14476, equation 8
    seq_mean_token_mean 1 / (sequences x row's tokens)  GRPO, arXiv:2402.03300, equation 3
    seq_mean_token_sum  1 / sequences
    ("constant", L)     1 / (sequences x L)             Dr.GRPO, arXiv:2503.20783

    Rows without a trained token count in no average, as in verl; TRL counts them as sequences.

    Raises ValueError for an unknown aggregation.
    """
    trained = mask.float()
    tokens, sequences = max(totals.tokens, 1), max(totals.sequences, 1)
    match agg:
        case "token_mean":
            return trained / tokens
        case "seq_mean_token_mean":
            return trained / (trained.sum(dim=1, keepdim=True).clamp(min=1) * sequences)
        case "seq_mean_token_sum":
            return trained / sequences
        case ("constant", int(length)):
            return trained / (sequences * length)
        case _:
            raise ValueError(
                f"unknown aggregation {agg!r}: use token_mean, seq_mean_token_mean, "
                "seq_mean_token_sum or ('constant', tokens), or pair_mean of pairs"
            )
