"""From rewards to advantages: the runtime's pure functions on whole batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast

import torch
from torch import Tensor
from xdsl.ir import Operation, SSAValue

from rpeg.interp.frame import Frame, Handler
from rpeg.ir.ops import rewards as ops
from rpeg.runtime import advantages
from rpeg.runtime.losses.kl import Estimator


def _mask(value: SSAValue, frame: Frame) -> Tensor:
    return frame.trajectories(value).mask


def weighted_sum(op: ops.WeightedSumOp, frame: Frame) -> tuple[Tensor]:
    """See `advantages.weighted_sum`."""
    weights = cast(tuple[float, ...], op.value("weights"))
    return (advantages.weighted_sum([frame.tensor(r) for r in op.rewards], weights),)


def kl_penalty(op: ops.KlPenaltyOp, frame: Frame) -> tuple[Tensor]:
    """See `advantages.kl_penalty`; the coefficient is a setting or a state."""
    state = op.coef_state
    penalised = advantages.kl_penalty(
        frame.tensor(op.reward),
        frame.tensor(op.policy),
        frame.tensor(op.reference),
        _mask(op.policy, frame),
        coef=op.float_of("coef") if state is None else frame.read(state, float),
        estimator=cast(Estimator, op.value("estimator")),
    )
    return (penalised,)


def sum_tokens(op: ops.SumTokensOp, frame: Frame) -> tuple[Tensor]:
    """See `advantages.sum_tokens`."""
    return (advantages.sum_tokens(frame.tensor(op.rewards), _mask(op.rewards, frame)),)


def returns(op: ops.ReturnsOp, frame: Frame) -> tuple[Tensor]:
    """See `advantages.returns`."""
    mask = _mask(op.rewards, frame)
    return (advantages.returns(frame.tensor(op.rewards), mask, gamma=op.float_of("gamma")),)


def gae(op: ops.GaeOp, frame: Frame) -> tuple[Tensor, Tensor]:
    """See `advantages.gae`."""
    return advantages.gae(
        frame.tensor(op.rewards),
        frame.tensor(op.values),
        _mask(op.values, frame),
        gamma=op.float_of("gamma"),
        lambda_=op.float_of("lambda"),
    )


def group_advantage(op: ops.GroupAdvantageOp, frame: Frame) -> tuple[Tensor]:
    """See `advantages.group_advantage`."""
    adv = advantages.group_advantage(
        frame.tensor(op.rewards),
        frame.trajectories(op.rewards).n,
        baseline=cast(advantages.Baseline, op.value("baseline")),
        scale=cast(advantages.Scale, op.value("scale")),
    )
    return (adv,)


def remax_advantage(op: ops.RemaxAdvantageOp, frame: Frame) -> tuple[Tensor]:
    """See `advantages.remax_advantage`."""
    rewards, greedy = frame.tensor(op.rewards), frame.tensor(op.baseline)
    return (advantages.remax_advantage(rewards, greedy, frame.trajectories(op.rewards).n),)


def whiten(op: ops.WhitenOp, frame: Frame) -> tuple[Tensor]:
    """See `advantages.whiten`, with the moments of this one whole batch."""
    field, y = frame.tensor(op.advantages), _mask(op.advantages, frame)
    counts = advantages.counts(field, y, cast(advantages.Count, op.counted))
    mask = y if field.dim() == y.dim() else torch.ones_like(field)
    return (advantages.whiten(field, mask, advantages.Moments.of(field, counts)),)


def importance(op: ops.ImportanceOp, frame: Frame) -> tuple[Tensor]:
    """See `advantages.importance`."""
    weight = advantages.importance(
        frame.tensor(op.current),
        frame.tensor(op.behaviour),
        _mask(op.behaviour, frame),
        floor=op.float_of("floor"),
        cap=op.float_of("cap"),
        mode=cast(Literal["truncate", "mask"], op.value("mode")),
        level=cast(Literal["token", "sequence"], op.value("level")),
    )
    return (weight,)


HANDLERS: Mapping[type[Operation], Handler] = {
    ops.WeightedSumOp: weighted_sum,
    ops.KlPenaltyOp: kl_penalty,
    ops.SumTokensOp: sum_tokens,
    ops.ReturnsOp: returns,
    ops.GaeOp: gae,
    ops.GroupAdvantageOp: group_advantage,
    ops.RemaxAdvantageOp: remax_advantage,
    ops.WhitenOp: whiten,
    ops.ImportanceOp: importance,
}
