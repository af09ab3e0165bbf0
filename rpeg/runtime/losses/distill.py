"""On-policy distillation from the teacher's log-probs of the student's own tokens.

Only the sampled token's log-prob crosses between the models, so both divergences are estimated: the
value of the loss is the estimate, and its gradient an unbiased estimate of the divergence's
gradient at each position, given that the tokens were sampled from the student.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from rpeg.runtime.losses.ratio import bounded_exp

Divergence = Literal["reverse_kl", "forward_kl"]


def distill(
    logprob: Tensor,
    teacher: Tensor,
    mask: Tensor,
    *,
    divergence: Divergence,
    coef: float = 1.0,
) -> Tensor:
    """coef x per-token divergence between student (`logprob`) and `teacher`, [samples, tokens].

    reverse_kl: KL(student || teacher) = E[log s - log t],  gradient E[(log s - log t) grad log s]
    forward_kl: KL(teacher || student) = E[t/s (log t - log s)],  gradient -E[t/s grad log s]

    with expectations over the student's tokens (generalised knowledge distillation,
    arXiv:2306.13649). The forward direction carries the unbounded weight t/s: expect variance.
    """
    student = torch.where(mask.bool(), logprob, teacher)
    gap = student - teacher
    if divergence == "reverse_kl":
        # exp(x - stop(x)) is 1 with gradient grad x: it carries the score-function gradient.
        score = torch.exp(student - student.detach())
        return coef * score * gap.detach() * mask
    return -coef * bounded_exp(-gap).detach() * gap * mask
