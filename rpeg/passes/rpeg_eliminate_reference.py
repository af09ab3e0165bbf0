"""`rpeg-eliminate-reference`: no reference model for a KL term of weight zero."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from rpeg.ir.ops.losses import KlLossOp
from rpeg.ir.ops.rewards import KlPenaltyOp
from rpeg.ir.ops.updates import UpdateOp
from rpeg.ir.types.values import TokenFieldType
from rpeg.passes.base import RpegPass, tidied
from rpeg.passes.legality import Condition, Legality, Reason
from rpeg.passes.statistics import Meanings

Term = KlLossOp | KlPenaltyOp


def _counts(term: Term) -> Iterator[Reason]:
    state = isinstance(term, KlPenaltyOp) and term.coef_state is not None
    if state or term.float_of("coef") != 0.0:
        yield term, "its coefficient is not 0"


def _spreads(term: Term) -> Iterator[Reason]:
    if isinstance(term, KlPenaltyOp) and not isinstance(term.reward.type, TokenFieldType):
        yield term, "it spreads a per-response reward over its tokens"


def _is_alone(term: Term) -> Iterator[Reason]:
    updates = [use.operation for use in term.results[0].uses] if isinstance(term, KlLossOp) else []
    for update in updates:
        if isinstance(update, UpdateOp) and all(_is_zero(loss) for loss in update.losses):
            yield update, "the update has no other loss"


def _is_zero(loss: SSAValue) -> bool:
    return isinstance(loss.owner, KlLossOp) and loss.owner.float_of("coef") == 0.0


LEGALITY: Legality = (
    Condition("weight 0", "The term's coefficient is the number 0, not a state.", _counts),
    Condition(
        "rewards per token", "A penalty changes rewards that are per token already.", _spreads
    ),
    Condition("another loss", "The update has a loss besides.", _is_alone),
)


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
    LEGALITY: ClassVar[Legality] = LEGALITY
    STATISTICS: ClassVar[Meanings] = {"KL terms removed": "losses and penalties of weight 0"}

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        with tidied(op):
            for term in [o for o in op.walk() if isinstance(o, KlLossOp | KlPenaltyOp)]:
                if self.legal(term):
                    _drop(term)
                    self.count("KL terms removed")


def _drop(term: Term) -> None:
    if isinstance(term, KlPenaltyOp):
        term.penalised.replace_all_uses_with(term.reward)
        return
    for update in [use.operation for use in term.results[0].uses]:
        assert isinstance(update, UpdateOp)
        kept = [loss for loss in update.losses if loss.owner is not term]
        update.operands = [update.weights, update.optimizer, *kept]
