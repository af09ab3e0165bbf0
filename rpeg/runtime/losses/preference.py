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


def implicit_rewards(logprob: Tensor, reference: Tensor, mask: Tensor, *, beta: float) -> Tensor:
    """beta sum_t (logprob_t - reference_t) over the mask, [rows]; arguments are [rows, tokens].

    The reward that a policy trained by DPO stands for (arXiv:2305.18290, equation 5), up to a
    number that is the same for all responses to a prompt.
    """
    return beta * ((logprob - reference) * mask).sum(dim=1)


def dpo(
    logprob: Tensor,
    reference: Tensor,
    mask: Tensor,
    *,
    beta: float,
    label_smoothing: float = 0.0,
) -> Tensor:
    """-(1 - e) log sigmoid(d) - e log sigmoid(-d), [pairs], with d = reward_chosen -
    reward_rejected, the implicit rewards, and e the label smoothing; arguments are
    [2 pairs, tokens].

    DPO (arXiv:2305.18290, equation 7); conservative DPO for e > 0, the share of labels that are
    taken to be wrong.
    """
    difference = margin(implicit_rewards(logprob, reference, mask, beta=beta))
    right, wrong = logsigmoid(difference), logsigmoid(-difference)
    return -(1.0 - label_smoothing) * right - label_smoothing * wrong


def reward_model(scores: Tensor, *, margin: float = 0.0) -> Tensor:
    """-log sigmoid(score_chosen - score_rejected - margin), [pairs], of scores [2 pairs].

    The Bradley-Terry model, as in InstructGPT (arXiv:2203.02155, equation 1); the margin, as in
    Llama 2 (arXiv:2307.09288, equation 2).
    """
    chosen, rejected = pairs(scores)
    return -logsigmoid(chosen - rejected - margin)


def margin(scores: Tensor) -> Tensor:
    """score_chosen - score_rejected, [pairs], of scores or implicit rewards [2 pairs]."""
    chosen, rejected = pairs(scores)
    return chosen - rejected
