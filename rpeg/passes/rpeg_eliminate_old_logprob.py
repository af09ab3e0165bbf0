"""`rpeg-eliminate-old-logprob`: no forward pass for log-probs that the update computes anyway."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.rewriter import InsertPoint, Rewriter

from rpeg.ir.ops.losses import CispoOp, PpoClipOp
from rpeg.ir.ops.sampling import LogprobOp, OnPolicyLogprobOp
from rpeg.ir.ops.updates import UpdateOp
from rpeg.passes.base import RpegPass, tidied
from rpeg.passes.legality import Condition, Legality, Reason
from rpeg.passes.statistics import Meanings


def _readers(old: LogprobOp) -> list[Operation]:
    return [use.operation for use in old.logprobs.uses]


def _users(old: LogprobOp) -> list[Operation]:
    """What reads the losses that clip against the log-probs."""
    results = (result for reader in _readers(old) for result in reader.results)
    return [use.operation for result in results for use in result.uses]


def _read_elsewhere(old: LogprobOp) -> Iterator[Reason]:
    if not _readers(old):
        yield old, "no loss reads these log-probs"
    for reader in _readers(old):
        if not isinstance(reader, PpoClipOp | CispoOp) or reader.old is not old.logprobs:
            yield reader, "only ppo_clip and cispo can take their old log-probs from the update"
        elif not reader.loss.uses:
            yield reader, "no update has this loss"


def _several_steps(old: LogprobOp) -> Iterator[Reason]:
    for user in _users(old):
        if isinstance(user, UpdateOp) and user.optimizer_steps > 1:
            yield (
                user,
                "exact for the first optimizer step only: the weights move between minibatches",
            )


def _replayed_routing(old: LogprobOp) -> Iterator[Reason]:
    for user in _users(old):
        if isinstance(user, UpdateOp) and user.text_of("routing") != "free":
            yield user, "the update replays the routing of experts, the log-probs do not"


LEGALITY: Legality = (
    Condition(
        "clipped losses only",
        "Nothing reads them but `ppo_clip` and `cispo`, as their old log-probs.",
        _read_elsewhere,
    ),
    Condition(
        "one optimizer step",
        "The updates of these losses take one: a second would need the log-probs from before it.",
        _several_steps,
    ),
    Condition("free routing", "Those updates do not replay routing.", _replayed_routing),
)
"""That the log-probs are of the weights that the update starts from is the language's own rule."""


@dataclass(frozen=True)
class RpegEliminateOldLogprobPass(RpegPass):
    """
    Where an update takes one optimizer step, the old log-probs of its clipped losses are the ones
    that its own forward pass computes, detached: the operation that computes them apart goes.

    Where that is not exact, or something else reads the log-probs, the operation stays.

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
    LEGALITY: ClassVar[Legality] = LEGALITY
    STATISTICS: ClassVar[Meanings] = {"forward passes removed": "log-probs taken from the update"}

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        with tidied(op):
            for old in [o for o in op.walk() if isinstance(o, LogprobOp)]:
                if self.legal(old):
                    _replace(old)
                    self.count("forward passes removed")


def _replace(old: LogprobOp) -> None:
    new = OnPolicyLogprobOp.make([old.trajectories], location=old.location)
    Rewriter.insert_op(new, InsertPoint.before(old))
    new.logprobs.name_hint = old.logprobs.name_hint
    old.logprobs.replace_all_uses_with(new.logprobs)
