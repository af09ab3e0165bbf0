"""From rewards to advantages: pure functions on tensors, no processes and no models.

Per-response fields are [samples], per-token fields and masks [samples, tokens]. Samples of one
prompt stand side by side: a group is `n` consecutive rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from rpeg.runtime.losses.kl import Estimator, kl_estimate
from rpeg.runtime.losses.ratio import bounded_exp

GROUP_EPSILON = 1e-6
"""Added to a group's standard deviation (verl adds as much, TRL 1e-4; the papers nothing)."""

VARIANCE_EPSILON = 1e-8
"""Added to a batch's variance before whitening, as verl does, and TRL's PPO did."""

Baseline = Literal["mean", "leave_one_out"]
Scale = Literal["std", "none"]


def weighted_sum(rewards: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """sum_k weights[k] x rewards[k], all of one shape. Raises ValueError if the lengths differ."""
    if len(rewards) != len(weights):
        raise ValueError(f"{len(rewards)} rewards need as many weights, not {len(weights)}")
    return torch.stack([w * r for w, r in zip(weights, rewards, strict=True)]).sum(dim=0)


def sum_tokens(rewards: Tensor, mask: Tensor) -> Tensor:
    """[samples] sum of per-token rewards over each response's mask."""
    return (rewards * mask).sum(dim=1)


def at_last_token(rewards: Tensor, mask: Tensor) -> Tensor:
    """Per-response rewards [samples] as per-token ones: all at the last unmasked token.

    A per-token reward is returned masked.
    """
    if rewards.dim() == mask.dim():
        return rewards * mask
    later = mask.long().flip(1).cumsum(1).flip(1)
    return rewards.unsqueeze(1) * (mask.bool() & (later == 1))


def group_advantage(rewards: Tensor, n: int, *, baseline: Baseline, scale: Scale) -> Tensor:
    """[samples] reward minus the group's baseline, over the group's deviation if asked for.

    mean / std:           (r - mean) / (std + 1e-6)          GRPO, arXiv:2402.03300
    mean / none:          r - mean                           Dr.GRPO, arXiv:2503.20783
    leave_one_out / none: r - mean of the other n - 1        RLOO, arXiv:2402.14740

    The deviation is the unbiased one (n - 1), as TRL and verl take it; it is 0 for n = 1, where
    `mean` gives advantage 0 (verl gives the reward itself there). Raises ValueError if rows aren't
    whole groups, or for leave_one_out with n = 1.
    """
    if rewards.shape[0] % n:
        raise ValueError(f"{rewards.shape[0]} samples aren't whole groups of {n}")
    if baseline == "leave_one_out" and n < 2:
        raise ValueError("leave_one_out needs groups of at least 2 samples: raise n of generate")
    group = rewards.float().view(-1, n)
    # Counted from the first reward, equal rewards give exactly 0: no rounding for std to blow up.
    group = group - group[:, :1]
    centred = group - group.mean(dim=1, keepdim=True)
    deviation = (centred.square().sum(dim=1, keepdim=True) / max(n - 1, 1)).sqrt()
    if baseline == "leave_one_out":
        # r - (sum - r) / (n - 1) = (r - mean) n / (n - 1)
        centred = centred * (n / (n - 1))
    return (centred / (deviation + GROUP_EPSILON) if scale == "std" else centred).flatten()


def remax_advantage(rewards: Tensor, greedy: Tensor, n: int) -> Tensor:
    """[samples] reward minus the reward of the greedy response to the same prompt.

    `rewards` is [prompts x n], `greedy` [prompts]. ReMax (arXiv:2310.10505). Raises
    ValueError if there aren't n samples for every greedy response.
    """
    if rewards.shape[0] != greedy.shape[0] * n:
        raise ValueError(
            f"{rewards.shape[0]} samples aren't {n} for each of {greedy.shape[0]} greedy responses"
        )
    return rewards - greedy.repeat_interleave(n)


def kl_penalty(
    rewards: Tensor,
    policy: Tensor,
    reference: Tensor,
    mask: Tensor,
    *,
    coef: float,
    estimator: Estimator = "k1",
) -> Tensor:
    """[samples, tokens] reward - coef x KL estimate; a per-response reward lands on the last token.

    InstructGPT (arXiv:2203.02155, equation 2), spread over tokens.
    """
    penalty = coef * kl_estimate(policy, reference, estimator)
    return at_last_token(rewards, mask) - torch.where(mask.bool(), penalty, 0.0)


def returns(rewards: Tensor, mask: Tensor, *, gamma: float = 1.0) -> Tensor:
    """[samples, tokens] discounted sum of this and later rewards: G_t = r_t + gamma G_{t+1}.

    Masked positions are skipped: they neither earn nor discount.
    """
    zero = torch.zeros_like(mask, dtype=torch.float32)
    return gae(rewards, zero, mask, gamma=gamma, lambda_=1.0)[0]


def gae(
    rewards: Tensor, values: Tensor, mask: Tensor, *, gamma: float = 1.0, lambda_: float = 0.95
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation (arXiv:1506.02438, equation 16): advantages and returns.

    delta_t = r_t + gamma v_{t+1} - v_t;  A_t = delta_t + gamma lambda A_{t+1};  return_t = A_t +
    v_t, with t + 1 the next unmasked token and v = A = 0 past the last one. All [samples, tokens].
    """
    earned = at_last_token(rewards.float(), mask)
    advantages = torch.zeros_like(values, dtype=torch.float32)
    next_value = torch.zeros(values.shape[0], device=values.device)
    running = torch.zeros_like(next_value)
    for t in range(values.shape[1] - 1, -1, -1):
        here, value = mask[:, t].bool(), values[:, t].float()
        delta = earned[:, t] + gamma * next_value - value
        running = torch.where(here, delta + gamma * lambda_ * running, running)
        next_value = torch.where(here, value, next_value)
        advantages[:, t] = running * here
    return advantages, (advantages + values) * mask


@dataclass(frozen=True)
class Moments:
    """Count, sum and sum of squares of a masked field: they add up over processes."""

    count: float
    total: float
    squares: float

    @staticmethod
    def of(field: Tensor, counts: Tensor) -> Moments:
        """Moments of one process's share, accumulated in float64.

        `counts` has the field's shape: how often each number counts; a mask is such counts.
        """
        x = torch.where(counts > 0, field.double(), 0.0)
        n = counts.double()
        return Moments(float(n.sum()), float((n * x).sum()), float((n * x.square()).sum()))

    @property
    def mean(self) -> float:
        """The mean; 0 if nothing was counted."""
        return self.total / max(self.count, 1.0)

    @property
    def variance(self) -> float:
        """The unbiased variance; 0 for fewer than two."""
        centred = self.squares - self.count * self.mean**2
        return max(centred, 0.0) / max(self.count - 1.0, 1.0)


Count = Literal["tokens", "responses"]


def counts(field: Tensor, mask: Tensor, count: Count) -> Tensor:
    """How often each number of a field counts in its batch, in the field's shape.

    A per-token field [samples, tokens] counts where the mask holds; a per-response field [samples]
    counts once per response, or once for each of its tokens.
    """
    if field.dim() == mask.dim():
        return mask
    return mask.sum(dim=1) if count == "tokens" else torch.ones_like(field)


def whiten(field: Tensor, mask: Tensor, moments: Moments) -> Tensor:
    """(x - mean) / sqrt(variance + 1e-8) on the mask, 0 elsewhere; `moments` are the whole batch's.

    `mask` has the field's shape. Applied to per-token returns it is REINFORCE++ (arXiv:2501.03262);
    applied to group-centred rewards, its variant with a baseline, where the authors and verl count
    a response once for each of its tokens.
    """
    return (field - moments.mean) / math.sqrt(moments.variance + VARIANCE_EPSILON) * mask


Mode = Literal["truncate", "mask"]
Level = Literal["token", "sequence"]


def importance(
    current: Tensor,
    behaviour: Tensor,
    mask: Tensor,
    *,
    cap: float = 2.0,
    floor: float = 0.0,
    mode: Mode = "truncate",
    level: Level = "token",
) -> Tensor:
    """[samples, tokens] off-policy weights w = pi_current / pi_behaviour, bounded; 0 outside the
    mask.

    token:    w_t = exp(current_t - behaviour_t)
    sequence: w   = exp(sum_t (current_t - behaviour_t)), the same for every token of a response
    truncate: min(w, cap)                      truncated importance sampling (Ionides 2008)
    mask:     w where floor <= w <= cap, else 0  (IcePop's band)
    """
    ratio = importance_ratio(current, behaviour, mask, level=level)
    return bounded_weights(ratio, cap=cap, floor=floor, mode=mode) * mask


def importance_ratio(current: Tensor, behaviour: Tensor, mask: Tensor, *, level: Level) -> Tensor:
    """[samples, tokens] the weights of `importance` before they are bounded; 1 outside the mask, or
    what the response has.
    """
    difference = ((current - behaviour) * mask).detach()
    if level == "sequence":
        difference = difference.sum(dim=1, keepdim=True).expand_as(mask)
    return bounded_exp(difference)


def bounded_weights(ratio: Tensor, *, cap: float, floor: float, mode: Mode) -> Tensor:
    """The weights of `importance`, from ratios of any shape."""
    if mode == "truncate":
        return ratio.clamp(max=cap)
    return torch.where((ratio >= floor) & (ratio <= cap), ratio, 0.0)
