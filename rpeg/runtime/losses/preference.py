"""Losses on pairs of responses to one prompt: direct preference optimisation and reward models.

Rows 2k and 2k + 1 are a pair, the chosen response first. Losses are [pairs]; their mean is trained.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import logsigmoid


def pairs(field: Tensor) -> tuple[Tensor, Tensor]:
    """(chosen, rejected) rows. Raises ValueError if a row has no partner."""
    if field.shape[0] % 2:
        raise ValueError(f"{field.shape[0]} rows aren't pairs of a chosen and a rejected response")
    return field[0::2], field[1::2]


def dpo(logprob: Tensor, reference: Tensor, mask: Tensor, *, beta: float) -> Tensor:
    """-log sigmoid(beta (d_chosen - d_rejected)), [pairs], with d = sum_t (logprob_t - reference_t)
    over the mask; arguments are [2 pairs, tokens].

    DPO (arXiv:2305.18290, equation 7).
    """
    chosen, rejected = pairs(((logprob - reference) * mask).sum(dim=1))
    return -logsigmoid(beta * (chosen - rejected))


def reward_model(scores: Tensor) -> Tensor:
    """-log sigmoid(score_chosen - score_rejected), [pairs], of scores [2 pairs].

    The Bradley-Terry model, as in InstructGPT (arXiv:2203.02155, equation 1).
    """
    chosen, rejected = pairs(scores)
    return -logsigmoid(chosen - rejected)
