"""`rpeg-eliminate-old-logprob`: no forward pass for log-probs that the update computes anyway."""

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation
from xdsl.transforms.dead_code_elimination import DeadCodeElimination

from rpeg.ir.ops.losses import CispoOp, PpoClipOp
from rpeg.ir.ops.sampling import LogprobOp, OnPolicyLogprobOp
from rpeg.ir.ops.updates import UpdateOp
from rpeg.ir.types import TrajectoriesType
from rpeg.passes.base import RpegPass, drop_unused, names, pipelines


@dataclass(frozen=True)
class RpegEliminateOldLogprobPass(RpegPass):
    """
    Where an update takes one optimizer step on trajectories of the current weights, the old log-probs of
    its clipped losses are the ones that its own forward pass computes, detached: the operation that
    computes them apart goes.

    It keeps the pass where it is not exact: several optimizer steps (exact for the first minibatch only),
    stale trajectories, replayed routing, or log-probs that something else reads too.

    Before:
        %lp_old = rpeg.logprob %actor, %y {stage = "lp_old"}
        %pg = rpeg.loss.ppo_clip %y, %adv, %lp_old {...}
        %actor_1, %actor_opt_1 = rpeg.update %actor, %actor_opt, %pg {epochs = 1 : i64, minibatches = 1 : i64, ...}
    After:
        %old = rpeg.on_policy_logprob %y
        %pg = rpeg.loss.ppo_clip %y, %adv, %old {...}
        %actor_1, %actor_opt_1 = rpeg.update %actor, %actor_opt, %pg {epochs = 1 : i64, minibatches = 1 : i64, ...}
    """

    name = "rpeg-eliminate-old-logprob"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for pipeline in pipelines(op):
            before = names(pipeline)
            for loss in list(_exact(pipeline)):
                _replace(loss)
            DeadCodeElimination().apply(ctx, op)
            drop_unused(pipeline, before)


def _exact(root: Operation) -> Iterator[PpoClipOp | CispoOp]:
    """Clipped losses whose old log-probs equal those of the update that reads them."""
    for loss in root.walk():
        if not isinstance(loss, PpoClipOp | CispoOp):
            continue
        old, y = loss.old.owner, loss.trajectories.type
        if not isinstance(old, LogprobOp) or not isinstance(y, TrajectoriesType):
            continue
        current = isinstance(old.weights.owner, Block) and y.lag == (0, 0)
        users = [use.operation for use in loss.loss.uses]
        if current and users and all(_one_step(u, old) for u in users):
            yield loss


def _one_step(user: Operation, old: LogprobOp) -> bool:
    return (
        isinstance(user, UpdateOp)
        and user.weights is old.weights
        and user.optimizer_steps == 1
        and user.text_of("routing") == "free"
    )


def _replace(loss: PpoClipOp | CispoOp) -> None:
    block = loss.parent_block()
    assert block is not None
    new = OnPolicyLogprobOp.make([loss.trajectories], location=loss.old.owner.location)  # type: ignore[union-attr]
    new.results[0].name_hint = loss.old.name_hint
    block.insert_op_before(new, loss)
    loss.operands[2] = new.results[0]
