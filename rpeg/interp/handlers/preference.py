"""Losses of pairs; of rows 2k and 2k + 1, the first is the chosen response."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor
from xdsl.ir import Operation

from rpeg.interp.frame import Frame, Handler
from rpeg.interp.network import Outputs
from rpeg.interp.values import LossTerm
from rpeg.ir.ops import preference as ops
from rpeg.runtime import losses
from rpeg.runtime.trajectories import Pairs


def dpo(op: ops.DpoOp, frame: Frame) -> tuple[LossTerm]:
    """See `losses.dpo`."""
    reference = frame.tensor(op.reference)
    beta, smoothing = op.float_of("beta"), op.float_of("label_smoothing")

    def loss(out: Outputs, rows: Tensor) -> Tensor:
        return losses.dpo(
            out.logprob, reference[rows], out.mask, beta=beta, label_smoothing=smoothing
        )

    return (LossTerm(op.SURFACE, frame.read(op.pairs, Pairs), loss),)


def reward_loss(op: ops.RewardLossOp, frame: Frame) -> tuple[LossTerm]:
    """See `losses.reward_model`."""
    margin = op.float_of("margin")

    def loss(out: Outputs, rows: Tensor) -> Tensor:
        return losses.reward_model(out.values.sum(dim=1), margin=margin)

    return (LossTerm(op.SURFACE, frame.read(op.pairs, Pairs), loss),)


HANDLERS: Mapping[type[Operation], Handler] = {ops.DpoOp: dpo, ops.RewardLossOp: reward_loss}
