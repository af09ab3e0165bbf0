"""The elementwise operations of a step: `advantages` applied to trajectories and their fields.

Rewards are [samples] or [samples, tokens], everything else is [samples, tokens], in y's order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from rpeg.runtime import advantages
from rpeg.runtime.advantages import Baseline, Count, Moments, Scale
from rpeg.runtime.groups import Groups
from rpeg.runtime.interfaces import Host
from rpeg.runtime.losses.kl import Estimator
from rpeg.runtime.scalar import Scalar
from rpeg.runtime.trajectories import Trajectories


def weighted_sum(*rewards: Tensor, weights: Sequence[float]) -> Tensor:
    """See `advantages.weighted_sum`."""
    return advantages.weighted_sum(rewards, weights)


def sum_tokens(y: Trajectories, rewards: Tensor) -> Tensor:
    """See `advantages.sum_tokens`."""
    return advantages.sum_tokens(rewards, y.mask)


def group_advantage(
    y: Trajectories, rewards: Tensor, *, baseline: Baseline, scale: Scale
) -> Tensor:
    """See `advantages.group_advantage`."""
    return advantages.group_advantage(rewards, y.n, baseline=baseline, scale=scale)


def remax_advantage(y: Trajectories, rewards: Tensor, baseline: Tensor) -> Tensor:
    """See `advantages.remax_advantage`; `baseline` [prompts] belongs to the same prompts, in
    their order.
    """
    return advantages.remax_advantage(rewards, baseline, y.n)


def kl_penalty(
    y: Trajectories,
    rewards: Tensor,
    policy: Tensor,
    reference: Tensor,
    *,
    coef: float | Scalar,
    estimator: Estimator = "k1",
) -> Tensor:
    """See `advantages.kl_penalty`; a coefficient that is a state stands for its current value."""
    number = coef.value if isinstance(coef, Scalar) else coef
    return advantages.kl_penalty(
        rewards, policy, reference, y.mask, coef=number, estimator=estimator
    )


def returns(y: Trajectories, rewards: Tensor, *, gamma: float = 1.0) -> Tensor:
    """See `advantages.returns`."""
    return advantages.returns(rewards, y.mask, gamma=gamma)


def gae(
    y: Trajectories, rewards: Tensor, values: Tensor, *, gamma: float = 1.0, lambda_: float = 0.95
) -> tuple[Tensor, Tensor]:
    """See `advantages.gae`."""
    return advantages.gae(rewards, values, y.mask, gamma=gamma, lambda_=lambda_)


def whiten(y: Trajectories, field: Tensor, *, count: Count, groups: Groups) -> Tensor:
    """Zero mean and unit deviation over the whole batch; each token counts once, or each response.

    Collective over the data-parallel groups. See `advantages.whiten` and `advantages.counts`.
    """
    mask = y.mask if field.dim() == y.mask.dim() else torch.ones_like(field)
    mine = Moments.of(field, advantages.counts(field, y.mask, count))
    sums = torch.tensor([mine.count, mine.total, mine.squares], dtype=torch.float64)
    return advantages.whiten(field, mask, Moments(*groups.sum_over_data(sums).tolist()))


def importance(
    run: Host,
    y: Trajectories,
    current: Tensor,
    behaviour: Tensor,
    *,
    cap: float = 2.0,
    floor: float = 0.0,
    mode: Literal["truncate", "mask"] = "truncate",
    level: Literal["token", "sequence"] = "token",
) -> Tensor:
    """See `advantages.importance`. The step's metrics tell the weights' mean and the share of
    tokens whose weight was bounded, and how far the policy is from the one that sampled.
    """
    ratio = advantages.importance_ratio(current, behaviour, y.mask, level=level)
    weights = advantages.bounded_weights(ratio, cap=cap, floor=floor, mode=mode)
    tokens = y.token_count
    if tokens:
        bounded = "importance/masked" if mode == "mask" else "importance/clipped"
        run.log("importance/mean", float(weights[y.mask].double().mean()), tokens)
        run.log(bounded, float((weights != ratio)[y.mask].double().mean()), tokens)
        apart = (behaviour - current)[y.mask].double()
        run.log("mismatch/kl", float(apart.mean()), tokens)
        run.log("mismatch/max", float(apart.abs().max()), how="max")
    return weights * y.mask
