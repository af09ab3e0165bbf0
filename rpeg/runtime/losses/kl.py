"""Monte Carlo estimators of KL(policy || reference) from sampled tokens, and the KL loss."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from rpeg.runtime.losses.ratio import LOG_RATIO_BOUND

Estimator = Literal["k1", "k2", "k3", "abs"]


def kl_estimate(logprob: Tensor, reference: Tensor, estimator: Estimator) -> Tensor:
    """Per-token estimate of KL(policy || reference) for tokens sampled from the policy.

    With d = logprob - reference (J. Schulman, "Approximating KL divergence", 2020):
    k1 = d, unbiased; k2 = d^2 / 2, biased with low variance; k3 = exp(-d) - 1 + d, unbiased and >=
    0; abs = |d|, no estimate of the KL, but a bounded pull towards the reference.

    The value of k1 says nothing about its use as a loss: its gradient is zero in expectation. k2's
    gradient is the one of the reverse KL. k3 is cut only where exp(-d) would overflow (d < -20):
    verl also cuts its value at 10, which takes the gradient of every token that the reference
    finds 14 times likelier than the policy does.
    """
    d = logprob - reference
    match estimator:
        case "k1":
            return d
        case "k2":
            return 0.5 * d.square()
        case "k3":
            d = d.clamp(min=-LOG_RATIO_BOUND)
            return torch.expm1(-d) + d
        case "abs":
            return d.abs()


ERROR_BOUND = 0.2
"""The controller's step is bounded as if the KL were at most a fifth off its target."""


def adapted_coef(coef: float, kl: float, samples: int, *, target: float, horizon: int) -> float:
    """The next KL coefficient: coef (1 + clip(kl / target - 1, -0.2, 0.2) samples / horizon).

    The proportional controller of arXiv:1909.08593 (equation 5), as in verl and TRL's PPO.
    """
    error = min(max(kl / target - 1.0, -ERROR_BOUND), ERROR_BOUND)
    return coef * (1.0 + error * samples / horizon)


def summed_kl(policy: Tensor, reference: Tensor, mask: Tensor) -> tuple[float, int]:
    """(sum over responses of the mean k1 of their tokens, responses with tokens).

    Summed over all processes, their quotient is the KL in nats per token that a controller steers.
    """
    lengths = mask.sum(dim=1)
    means = (kl_estimate(policy, reference, "k1") * mask).double().sum(dim=1) / lengths.clamp(min=1)
    return float(means.sum()), int((lengths > 0).sum())


def kl_loss(
    logprob: Tensor,
    reference: Tensor,
    mask: Tensor,
    *,
    coef: float,
    estimator: Estimator = "k3",
) -> Tensor:
    """coef x KL estimate, [samples, tokens] (GRPO's k3 term: arXiv:2402.03300, equation 4)."""
    # Outside the mask both log-probs are padding, where exp could overflow into NaN gradients.
    difference = torch.where(mask.bool(), logprob, reference)
    return coef * kl_estimate(difference, reference, estimator) * mask
