"""`rpeg-eliminate-reference`: no reference model for a KL term of weight zero."""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from rpeg.ir.ops.losses import KlLossOp
from rpeg.ir.ops.rewards import KlPenaltyOp
from rpeg.ir.ops.updates import UpdateOp
from rpeg.ir.types import TokenFieldType
from rpeg.passes.base import RpegPass, count, tidied


@dataclass(frozen=True)
class RpegEliminateReferencePass(RpegPass):
    """
    Drops KL terms with coefficient 0 from the updates and from per-token rewards, and with them the
    log-probs of the reference and the reference model itself where nothing else reads them. An
    update's only loss stays.

    Before:
        %lp_ref = rpeg.logprob %ref, %y {stage = "lp_ref"}
        %kl = rpeg.loss.kl %y, %lp_ref {coef = 0.0 : f64, estimator = "k3"}
        %actor_1, %actor_opt_1 = rpeg.update %actor, %actor_opt, %pg, %kl {...}
    After:
        %actor_1, %actor_opt_1 = rpeg.update %actor, %actor_opt, %pg {...}
    """

    name = "rpeg-eliminate-reference"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        with tidied(op):
            for inner in list(op.walk()):
                if isinstance(inner, UpdateOp):
                    _without_zero_losses(inner)
                elif isinstance(inner, KlPenaltyOp) and _changes_nothing(inner):
                    inner.penalised.replace_all_uses_with(inner.reward)
                    count("penalties of weight zero dropped")


def _without_zero_losses(update: UpdateOp) -> None:
    kept = [loss for loss in update.losses if not _is_zero(loss)]
    if kept:
        count("losses of weight zero dropped", len(update.losses) - len(kept))
        update.operands = [update.weights, update.optimizer, *kept]


def _is_zero(loss: SSAValue) -> bool:
    return isinstance(loss.owner, KlLossOp) and loss.owner.float_of("coef") == 0.0


def _changes_nothing(penalty: KlPenaltyOp) -> bool:
    """A penalty of zero on rewards a token; on those a response it still spreads them."""
    per_token = isinstance(penalty.reward.type, TokenFieldType)
    return per_token and penalty.coef_state is None and penalty.float_of("coef") == 0.0
