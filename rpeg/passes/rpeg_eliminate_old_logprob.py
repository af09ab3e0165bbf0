"""`rpeg-eliminate-old-logprob`: no forward pass for log-probs that the update computes anyway."""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation
from xdsl.rewriter import InsertPoint, Rewriter

from rpeg.ir.ops.losses import CispoOp, PpoClipOp
from rpeg.ir.ops.sampling import LogprobOp, OnPolicyLogprobOp
from rpeg.ir.ops.updates import UpdateOp
from rpeg.ir.types import TrajectoriesType
from rpeg.passes.base import RpegPass, count, tidied


@dataclass(frozen=True)
class RpegEliminateOldLogprobPass(RpegPass):
    """
    Where an update takes one optimizer step on trajectories of the current weights, the old
    log-probs of its clipped losses are the ones that its own forward pass computes, detached: the
    operation that computes them apart goes.

    It keeps the operation where it is not exact: several optimizer steps (exact for the first
    minibatch only), stale trajectories, replayed routing; and where something else reads it too.

    Before:
        %lp_old = rpeg.logprob %actor, %y {stage = "lp_old"}
        %pg = rpeg.loss.ppo_clip %y, %adv, %lp_old {...}
        %actor_1, %actor_opt_1 = rpeg.update %actor, %actor_opt, %pg {epochs = 1 : i64, ...}
    After:
        %lp_old = rpeg.on_policy_logprob %y
        %pg = rpeg.loss.ppo_clip %y, %adv, %lp_old {...}
        %actor_1, %actor_opt_1 = rpeg.update %actor, %actor_opt, %pg {epochs = 1 : i64, ...}
    """

    name = "rpeg-eliminate-old-logprob"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        with tidied(op):
            for old in [o for o in op.walk() if isinstance(o, LogprobOp) and _exact(o)]:
                _replace(old)


def _exact(old: LogprobOp) -> bool:
    """Whether every reader is a clipped loss of an update that computes the same itself."""
    y = old.trajectories.type
    current = isinstance(old.weights.owner, Block)
    if not current or not isinstance(y, TrajectoriesType) or y.lag != (0, 0):
        return False
    readers = [use.operation for use in old.logprobs.uses]
    return bool(readers) and all(_clips_against(r, old) for r in readers)


def _clips_against(reader: Operation, old: LogprobOp) -> bool:
    if not isinstance(reader, PpoClipOp | CispoOp) or reader.old is not old.logprobs:
        return False
    users = [use.operation for use in reader.loss.uses]
    return bool(users) and all(_one_step(user, old) for user in users)


def _one_step(user: Operation, old: LogprobOp) -> bool:
    return (
        isinstance(user, UpdateOp)
        and user.weights is old.weights
        and user.optimizer_steps == 1
        and user.text_of("routing") == "free"
    )


def _replace(old: LogprobOp) -> None:
    new = OnPolicyLogprobOp.make([old.trajectories], location=old.location)
    Rewriter.insert_op(new, InsertPoint.before(old))
    new.logprobs.name_hint = old.logprobs.name_hint
    old.logprobs.replace_all_uses_with(new.logprobs)
    count("forward passes removed")
