"""Loss terms, as dataflow. `update` sums them; the formulas are in rpeg.runtime.losses."""

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import ClassVar

from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import irdl_op_definition, traits_def
from xdsl.traits import Pure

from rpeg.ir.base import RpegOp, index_name
from rpeg.ir.definitions import gives, maybe, operand, optional, required, setting
from rpeg.ir.rules import violations
from rpeg.ir.rules.staleness import COVERS
from rpeg.ir.rules.violations import Violation
from rpeg.ir.text.naming import free_name, name_of, trajectories_of
from rpeg.ir.types.values import LossType, TokenFieldType, TrajectoriesType, is_unknown
from rpeg.ir.vocabulary.settings import FLOAT, word


class LossOp(RpegOp):
    """A loss term."""

    ANCHORED: ClassVar[bool] = True
    """Safe for more than one optimizer step in an update."""
    TRAINS: ClassVar[tuple[str, ...]] = ("policy", "actor_critic")
    """The kinds of models that it can train."""
    FOLLOWS: ClassVar[bool] = False
    """It has no correction for staleness of its own: its batch's policy loss covers the lag."""
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        return [LossType(self.trained())]

    def trained(self) -> str:
        """Name of the model that the loss trains; empty if it fits any."""
        y = self.operands[0].type
        return y.owner if isinstance(y, TrajectoriesType) else ""


class PolicyLossOp(LossOp):
    """A loss of sampled actions, with the rules that all of them share."""

    def old_logprobs(self) -> SSAValue | None:
        """The log-probs that the ratio is taken against."""
        return None

    def weights(self) -> SSAValue | None:
        """The importance weights."""
        return None

    def correction(self) -> str:
        """How staleness is corrected: a key of COVERS."""
        old = self.old_logprobs()
        if self.weights() is not None:
            return "weighted"
        sampled = old is not None and isinstance(old.type, TokenFieldType) and old.type.sampled
        return "anchored at behaviour" if sampled else "uncorrected"

    def rules(self) -> Iterator[Violation]:
        y = self.operands[0]
        assert isinstance(y.type, TrajectoriesType)
        yield from self._owner_rule(y.type)
        if y.type.cut:
            yield Violation(
                "cut-distribution",
                f"`{name_of(y)}` is sampled from a cut distribution: a policy loss needs top_p=1.0 "
                "and temperature > 0",
                violations.operand(0),
            )
        yield from self._corrected_once()
        yield from self._staleness_rule(y, y.type)

    def _corrected_once(self) -> Iterator[Violation]:
        """A ratio to what was sampled holds the correction that its weight makes once more."""
        old, weight = self.old_logprobs(), self.weights()
        if old is None or weight is None or not isinstance(old.type, TokenFieldType):
            return
        if old.type.sampled:
            yield Violation(
                "corrected-twice",
                f"`{name_of(old)}` is what the tokens were sampled under, and `{name_of(weight)}` "
                f"corrects for that already: write `{_current(weight)}` as `old`",
                violations.operand(2),
            )

    def _owner_rule(self, y: TrajectoriesType) -> Iterator[Violation]:
        old = self.old_logprobs()
        if old is None or not isinstance(old.type, TokenFieldType) or old.type.owner == y.owner:
            return
        yield Violation(
            "foreign-logprobs",
            f"`old` is the trained model's own log-probs ({y.owner}); `{name_of(old)}` was made by "
            f"`{old.type.owner}`",
            violations.operand(2),
        )

    def _staleness_rule(self, y: SSAValue, held: TrajectoriesType) -> Iterator[Violation]:
        how = self.correction()
        covers, oldest, i = COVERS[how], held.lag[1], index_name(self)
        if oldest <= covers and (held.bound != "head" or how == "weighted"):
            return
        start = f"`{name_of(y)}` may be {oldest} versions old{_admitted(held)}, "
        if how == "weighted":
            yield Violation(
                "lag-beyond-correction",
                f"{start}a weighted {self.SURFACE} covers {covers}: narrow the window to "
                f"{held.owner}@[{i}-{covers}..{i}]",
            )
            return
        yield Violation(
            "uncorrected-lag" if covers == 0 else "lag-beyond-correction",
            f"{start}{self.SURFACE} covers {covers} here ({how}): write {self._weighted(y, held)}",
        )

    def _weighted(self, y: SSAValue, held: TrajectoriesType) -> str:
        """The lines that weigh this loss: those of its weights too, where there are none yet."""
        made = next((w for w in _weights_before(self) if trajectories_of(w) is y), None)
        if made is not None:
            return self._with_weights(_current(made), name_of(made))
        prox, w = (free_name(self, wanted) for wanted in ("prox", "w"))
        return (
            f"`{prox} = logprob({held.owner}@{index_name(self)}, {name_of(y)})`, "
            f"`{w} = importance({prox}, {_sampled(y)})`, then {self._with_weights(prox, w)}"
        )

    def _with_weights(self, prox: str, w: str) -> str:
        """The call of this loss with weights `w` that were made with the log-probs `prox`."""
        old = [prox] if self.old_logprobs() is not None else []
        table = self.setting_table()
        given = (
            n for n in table if n in self.properties and self.properties[n] != table[n].default
        )
        settings = [f"{name}={self.value(name)}" for name in given]
        return (
            f"{self.SURFACE}({', '.join([*map(name_of, self.operands[:2]), *old, w, *settings])})"
        )


def _admitted(held: TrajectoriesType) -> str:
    """What a message adds where the window bounds admission only."""
    return " when admitted and older when trained on (bound=head)" if held.bound == "head" else ""


def _weights_before(loss: Operation) -> Iterator[SSAValue]:
    """Importance weights that stand before a loss, beside it."""
    block = loss.parent_block()
    before = takewhile(lambda op: op is not loss, block.ops if block is not None else ())
    return (op.results[0] for op in before if op.name == "rpeg.importance")


def _current(weight: SSAValue) -> str:
    """Name of the log-probs that an importance weight has above the recorded ones."""
    maker = weight.owner
    if isinstance(maker, Operation) and maker.name == "rpeg.importance":
        return name_of(maker.operands[0])
    return "prox"


def _sampled(y: SSAValue) -> str:
    """Name of the log-probs recorded with these trajectories."""
    maker = y.owner
    results = getattr(maker, "results", ())
    recorded = (r for r in results if isinstance(r.type, TokenFieldType) and r.type.sampled)
    found = next((r for r in recorded if trajectories_of(r) is y), None)
    return name_of(found) if found is not None and not is_unknown(found.type) else "lp"


@irdl_op_definition
class PpoClipOp(PolicyLossOp):
    """PPO's clipped ratio loss, per token or per sequence (GSPO)."""

    name = "rpeg.loss.ppo_clip"
    SURFACE: ClassVar[str] = "ppo_clip"
    trajectories = operand("traj")
    advantages = operand("tok.advantage | seq.advantage")
    old = operand("tok.logprob")
    weight = optional("tok.weight")
    clip_low = required(FLOAT, "0.2", least=0, most=1)
    clip_high = required(FLOAT, "0.2", least=0)
    clip_dual = maybe(FLOAT, least=1)
    ratio = setting(word("token", "sequence"), "token")
    loss = gives("loss")

    def old_logprobs(self) -> SSAValue:
        return self.old

    def weights(self) -> SSAValue | None:
        return self.weight

    def rules(self) -> Iterator[Violation]:
        low, high = self.float_of("clip_low"), self.float_of("clip_high")
        if low > high:
            yield Violation(
                "crossed-clip-bounds",
                f"clip_low={low} is above clip_high={high}; DAPO's clip-higher raises clip_high",
            )
        yield from super().rules()


@irdl_op_definition
class CispoOp(PolicyLossOp):
    """CISPO: the clipped ratio, detached, weights the policy gradient."""

    name = "rpeg.loss.cispo"
    SURFACE: ClassVar[str] = "cispo"
    trajectories = operand("traj")
    advantages = operand("tok.advantage | seq.advantage")
    old = operand("tok.logprob")
    weight = optional("tok.weight")
    clip_high = required(FLOAT, "4.0", least=0)
    loss = gives("loss")

    def old_logprobs(self) -> SSAValue:
        return self.old

    def weights(self) -> SSAValue | None:
        return self.weight


@irdl_op_definition
class PolicyGradientOp(PolicyLossOp):
    """REINFORCE: advantage times log-prob."""

    name = "rpeg.loss.policy_gradient"
    SURFACE: ClassVar[str] = "policy_gradient"
    ANCHORED: ClassVar[bool] = False
    trajectories = operand("traj")
    advantages = operand("tok.advantage | seq.advantage")
    weight = optional("tok.weight")
    loss = gives("loss")

    def weights(self) -> SSAValue | None:
        return self.weight


@irdl_op_definition
class KlLossOp(LossOp):
    """The divergence from a reference policy."""

    name = "rpeg.loss.kl"
    SURFACE: ClassVar[str] = "kl_loss"
    FOLLOWS: ClassVar[bool] = True
    trajectories = operand("traj")
    reference = operand("tok.logprob")
    coef = required(FLOAT, "0.001", least=0)
    estimator = setting(word("k1", "k2", "k3"), "k3")
    loss = gives("loss")


@irdl_op_definition
class EntropyBonusOp(LossOp):
    """Minus coef x the policy's entropy."""

    name = "rpeg.loss.entropy"
    SURFACE: ClassVar[str] = "entropy_bonus"
    FOLLOWS: ClassVar[bool] = True
    trajectories = operand("traj")
    coef = required(FLOAT, "0.001")
    loss = gives("loss")


@irdl_op_definition
class ValueLossOp(LossOp):
    """The critic's clipped squared error."""

    name = "rpeg.loss.value"
    SURFACE: ClassVar[str] = "value_loss"
    TRAINS: ClassVar[tuple[str, ...]] = ("value", "actor_critic")
    trajectories = operand("traj")
    returns = operand("tok.returns")
    old = operand("tok.value")
    clip = required(FLOAT, "0.2", least=0)
    coef = setting(FLOAT, 1.0, least=0)
    loss = gives("loss")

    def trained(self) -> str:
        return self.old.type.owner if isinstance(self.old.type, TokenFieldType) else ""


@irdl_op_definition
class DistillOp(LossOp):
    """The divergence from a teacher on the student's own trajectories."""

    name = "rpeg.loss.distill"
    SURFACE: ClassVar[str] = "distill"
    trajectories = operand("traj")
    teacher = operand("tok.logprob")
    divergence = required(word("reverse_kl", "forward_kl"))
    coef = setting(FLOAT, 1.0, least=0)
    loss = gives("loss")

    def rules(self) -> Iterator[Violation]:
        y, teacher = self.trajectories.type, self.teacher.type
        assert isinstance(y, TrajectoriesType) and isinstance(teacher, TokenFieldType)
        if teacher.owner == y.owner:
            yield Violation("own-teacher", f"the teacher must be another model than `{y.owner}`")
        if y.lag[1] > 0:
            yield Violation(
                "uncorrected-lag",
                "distill is on-policy: its trajectories must come from weights @i",
            )


@irdl_op_definition
class CrossEntropyOp(LossOp):
    """Supervised loss on demonstrations."""

    name = "rpeg.loss.cross_entropy"
    SURFACE: ClassVar[str] = "cross_entropy"
    examples = operand("demos")
    coef = setting(FLOAT, 1.0)
    loss = gives("loss")


OPS: tuple[type[RpegOp], ...] = (
    PpoClipOp,
    CispoOp,
    PolicyGradientOp,
    KlLossOp,
    EntropyBonusOp,
    ValueLossOp,
    DistillOp,
    CrossEntropyOp,
)
