"""Loss terms: each closes over its fields and waits for an update to ask for rows of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from torch import Tensor
from xdsl.ir import Operation, SSAValue

from rpeg.interp.frame import Frame, Handler
from rpeg.interp.network import Outputs
from rpeg.interp.values import LossTerm, OnPolicy
from rpeg.ir.ops import losses as ops
from rpeg.runtime import losses
from rpeg.runtime.losses.distill import Divergence
from rpeg.runtime.losses.kl import Estimator
from rpeg.runtime.losses.policy import Ratio
from rpeg.runtime.trajectories import Demos, Trajectories


def ppo_clip(op: ops.PpoClipOp, frame: Frame) -> tuple[LossTerm]:
    """See `losses.ppo_clip`."""
    fields = _PolicyFields(op.advantages, op.old, op.weight, frame)
    low, high = op.float_of("clip_low"), op.float_of("clip_high")
    dual, ratio = cast("float | None", op.value("clip_dual")), cast(Ratio, op.value("ratio"))

    def loss(out: Outputs, rows: Tensor) -> Tensor:
        adv, old, weight = fields.at(rows, out)
        return losses.ppo_clip(
            out.logprob,
            adv,
            old,
            out.mask,
            clip_low=low,
            clip_high=high,
            clip_dual=dual,
            ratio=ratio,
            weight=weight,
        )

    return (fields.term(op, loss),)


def cispo(op: ops.CispoOp, frame: Frame) -> tuple[LossTerm]:
    """See `losses.cispo`."""
    fields = _PolicyFields(op.advantages, op.old, op.weight, frame)
    high = op.float_of("clip_high")

    def loss(out: Outputs, rows: Tensor) -> Tensor:
        adv, old, weight = fields.at(rows, out)
        return losses.cispo(out.logprob, adv, old, out.mask, clip_high=high, weight=weight)

    return (fields.term(op, loss),)


def policy_gradient(op: ops.PolicyGradientOp, frame: Frame) -> tuple[LossTerm]:
    """See `losses.policy_gradient`."""
    fields = _PolicyFields(op.advantages, None, op.weight, frame)

    def loss(out: Outputs, rows: Tensor) -> Tensor:
        adv, _, weight = fields.at(rows, out)
        return losses.policy_gradient(out.logprob, adv, out.mask, weight=weight)

    return (fields.term(op, loss),)


class _PolicyFields:
    """Advantages, old log-probs and importance weights of a policy loss."""

    def __init__(
        self, advantages: SSAValue, old: SSAValue | None, weight: SSAValue | None, frame: Frame
    ) -> None:
        self._frame = frame
        self._advantages = frame.tensor(advantages)
        held = OnPolicy() if old is None else frame.value(old)
        self._old = None if isinstance(held, OnPolicy) or old is None else frame.tensor(old)
        self._weight = None if weight is None else frame.tensor(weight)

    def at(self, rows: Tensor, out: Outputs) -> tuple[Tensor, Tensor, Tensor | None]:
        """(advantages, old log-probs, weights) of some rows; on policy, old = new, detached."""
        old = out.logprob.detach() if self._old is None else self._old[rows]
        weight = None if self._weight is None else self._weight[rows]
        return self._advantages[rows], old, weight

    def term(self, op: ops.PolicyLossOp, loss: Callable[[Outputs, Tensor], Tensor]) -> LossTerm:
        """The summand that takes them."""
        y = self._frame.read(op.operands[0], Trajectories)
        return LossTerm(op.SURFACE, y, loss, {"advantages": self._advantages})


def kl_loss(op: ops.KlLossOp, frame: Frame) -> tuple[LossTerm]:
    """See `losses.kl_loss`."""
    reference, coef = frame.tensor(op.reference), op.float_of("coef")
    estimator = cast(Estimator, op.value("estimator"))

    def loss(out: Outputs, rows: Tensor) -> Tensor:
        return losses.kl_loss(
            out.logprob, reference[rows], out.mask, coef=coef, estimator=estimator
        )

    return (LossTerm(op.SURFACE, frame.read(op.trajectories, Trajectories), loss),)


def entropy_bonus(op: ops.EntropyBonusOp, frame: Frame) -> tuple[LossTerm]:
    """See `losses.entropy_bonus`."""
    coef = op.float_of("coef")

    def loss(out: Outputs, rows: Tensor) -> Tensor:
        return losses.entropy_bonus(out.entropy, out.mask, coef=coef)

    return (LossTerm(op.SURFACE, frame.read(op.trajectories, Trajectories), loss),)


def value_loss(op: ops.ValueLossOp, frame: Frame) -> tuple[LossTerm]:
    """See `losses.value_loss`."""
    returns, old = frame.tensor(op.returns), frame.tensor(op.old)
    clip, coef = op.float_of("clip"), op.float_of("coef")

    def loss(out: Outputs, rows: Tensor) -> Tensor:
        return losses.value_loss(
            out.values, returns[rows], old[rows], out.mask, clip=clip, coef=coef
        )

    y, targets = frame.read(op.trajectories, Trajectories), {"returns": returns}
    return (LossTerm(op.SURFACE, y, loss, targets),)


def distill(op: ops.DistillOp, frame: Frame) -> tuple[LossTerm]:
    """See `losses.distill`."""
    teacher, coef = frame.tensor(op.teacher), op.float_of("coef")
    divergence = cast(Divergence, op.value("divergence"))

    def loss(out: Outputs, rows: Tensor) -> Tensor:
        return losses.distill(
            out.logprob, teacher[rows], out.mask, divergence=divergence, coef=coef
        )

    return (LossTerm(op.SURFACE, frame.read(op.trajectories, Trajectories), loss),)


def cross_entropy(op: ops.CrossEntropyOp, frame: Frame) -> tuple[LossTerm]:
    """See `losses.cross_entropy`."""
    coef = op.float_of("coef")

    def loss(out: Outputs, rows: Tensor) -> Tensor:
        return losses.cross_entropy(out.logprob, out.mask, coef=coef)

    return (LossTerm(op.SURFACE, frame.read(op.examples, Demos), loss),)


HANDLERS: Mapping[type[Operation], Handler] = {
    ops.PpoClipOp: ppo_clip,
    ops.CispoOp: cispo,
    ops.PolicyGradientOp: policy_gradient,
    ops.KlLossOp: kl_loss,
    ops.EntropyBonusOp: entropy_bonus,
    ops.ValueLossOp: value_loss,
    ops.DistillOp: distill,
    ops.CrossEntropyOp: cross_entropy,
}
