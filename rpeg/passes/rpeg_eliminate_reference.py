"""`rpeg-eliminate-reference`: no reference model for a KL term of weight zero."""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.transforms.dead_code_elimination import DeadCodeElimination

from rpeg.ir.ops.losses import KlLossOp
from rpeg.ir.ops.rewards import KlPenaltyOp
from rpeg.ir.ops.updates import UpdateOp
from rpeg.ir.types import TokenFieldType
from rpeg.passes.base import RpegPass, drop_unused, names, pipelines


@dataclass(frozen=True)
class RpegEliminateReferencePass(RpegPass):
    """
    Drops KL terms with coefficient 0 from the updates, and with them the log-probs of the reference and the
    reference model itself where nothing else reads them. An update's only loss stays.

    Before:
        %lp_ref = rpeg.logprob %ref, %y {stage = "lp_ref"}
        %kl = rpeg.loss.kl %y, %lp_ref {coef = 0.0 : f64, estimator = "k3"}
        %actor_1, %actor_opt_1 = rpeg.update %actor, %actor_opt, %pg, %kl {...}
    After:
        %actor_1, %actor_opt_1 = rpeg.update %actor, %actor_opt, %pg {...}
    """

    name = "rpeg-eliminate-reference"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for pipeline in pipelines(op):
            before = names(pipeline)
            for inner in list(pipeline.walk()):
                _without_kl(inner)
            DeadCodeElimination().apply(ctx, op)
            drop_unused(pipeline, before)


def _without_kl(op: Operation) -> None:
    if isinstance(op, UpdateOp):
        kept = [v for v in op.losses if not _is_zero(v.owner)]
        if kept:
            op.operands = [op.weights, op.optimizer, *kept]
    elif isinstance(op, KlPenaltyOp) and op.coef_state is None and op.float_of("coef") == 0.0:
        if isinstance(op.reward.type, TokenFieldType):
            op.penalised.replace_all_uses_with(op.reward)


def _is_zero(owner: object) -> bool:
    return isinstance(owner, KlLossOp) and owner.float_of("coef") == 0.0
