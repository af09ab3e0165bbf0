"""Operations that make the next version of a state."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from xdsl.dialects.builtin import SymbolRefAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import irdl_op_definition, opt_prop_def, traits_def
from xdsl.traits import Pure

from rpeg.ir.base import RpegOp, index_name
from rpeg.ir.declared import declaration, place_in_file
from rpeg.ir.definitions import gives, hidden, hidden_result, many, operand, required, setting
from rpeg.ir.ops.losses import KlLossOp, LossOp, PolicyLossOp
from rpeg.ir.ops.preference import DpoOp, PairLossOp
from rpeg.ir.rules import violations
from rpeg.ir.rules.divergence import divergence_violations, is_own
from rpeg.ir.rules.models import like_trunks
from rpeg.ir.rules.violations import Violation
from rpeg.ir.text.naming import name_of, trajectories_of
from rpeg.ir.types.batches import PairsType
from rpeg.ir.types.flow import symbol_text
from rpeg.ir.types.values import (
    NEXT,
    LossType,
    OptimizerType,
    StateType,
    TrajectoriesType,
    WeightsType,
)
from rpeg.ir.vocabulary.settings import BOOL, FLOAT, INT, word
from rpeg.ir.vocabulary.signature import Scope

TRAINABLE = "model.policy | model.value | model.actor_critic | model.reward"
PAIR_MEAN = "pair_mean"
AGGREGATIONS = word(
    "token_mean",
    "seq_mean_token_mean",
    "seq_mean_token_sum",
    PAIR_MEAN,
    records=("constant",),
)


def _weights(value: SSAValue) -> WeightsType:
    assert isinstance(value.type, WeightsType)
    return value.type


def _owner(value: SSAValue) -> str:
    """Name of the model whose weights these are; of anything else, as in a broken step, nothing."""
    return value.type.owner if isinstance(value.type, WeightsType) else ""


@irdl_op_definition
class UpdateOp(RpegOp):
    """epochs x minibatches optimizer steps on the sum of the losses."""

    name = "rpeg.update"
    SURFACE: ClassVar[str] = "update"
    SCOPE: ClassVar[Scope] = "batch"
    PLACED: ClassVar[bool] = True
    READS_NEXT: ClassVar[bool] = True  # its own rule says more
    weights = operand(TRAINABLE)
    optimizer = hidden("opt")
    losses = many("loss", at_least_one=True)
    agg = required(AGGREGATIONS)
    epochs = setting(INT, 1, least=1)
    minibatches = setting(INT, 1, least=1)
    shuffle = setting(BOOL, True)
    routing = setting(word("free", "replay"), "free")
    seed = setting(INT, 0)
    updated = gives("next")
    optimizer_after = hidden_result("opt")
    traits = traits_def(Pure())

    @property
    def optimizer_steps(self) -> int:
        """Optimizer steps in one update."""
        return self.int_of("epochs") * self.int_of("minibatches")

    def infer(self) -> Sequence[Attribute]:
        weights = _weights(self.weights)
        return [weights.at(NEXT, NEXT), OptimizerType(weights.model)]

    def makes(self) -> str:
        """Name of the model whose next version this is; empty where it trains no model."""
        return _owner(self.weights)

    def rules(self) -> Iterator[Violation]:
        owner = self.makes()
        yield from made_once(self, owner)
        yield from self._optimizer_rule(owner)
        for index, loss in enumerate(self.losses):
            yield from self._loss_rules(owner, index + 2, loss)
        yield from self._repetition_rule()
        yield from self._aggregation_rule()
        yield from self._followers_rule()
        yield from self._size_rule()

    def _optimizer_rule(self, owner: str) -> Iterator[Violation]:
        model = declaration(self, owner)
        if model is not None and "optim" not in model.properties:
            yield Violation(
                "update-without-optimizer",
                f"`{owner}` has no optimizer: add optim=adamw(lr=...) to its declaration at "
                f"{place_in_file(model) or 'the top'}",
                violations.operand(0),
            )

    def _loss_rules(self, owner: str, index: int, loss: SSAValue) -> Iterator[Violation]:
        if isinstance(loss.type, LossType) and loss.type.owner not in ("", owner):
            yield Violation(
                "foreign-loss",
                f"`{name_of(loss)}` is a loss of `{loss.type.owner}`, this update trains `{owner}`",
                violations.operand(index),
            )
            return
        maker = loss.owner
        if not isinstance(maker, LossOp):
            return
        yield from self._role_rules(maker, index)
        yield from self._own_reference_rule(maker, index)
        if self.optimizer_steps > 1 and not maker.ANCHORED:
            yield Violation(
                "unanchored-loss",
                f"{maker.SURFACE} is right for one optimizer step; this update takes "
                f"{self.optimizer_steps} (epochs x minibatches): use ppo_clip, or 1",
                violations.operand(index),
            )

    def _role_rules(self, loss: LossOp, index: int) -> Iterator[Violation]:
        model = _weights(self.weights)
        if model.what not in loss.TRAINS:
            yield Violation(
                "foreign-loss",
                f"{loss.SURFACE} trains a {loss.TRAINS[0]} model; `{model.owner}` is a "
                f"{model.what} model",
                violations.operand(index),
            )
        elif isinstance(loss, DpoOp) and loss.reference_model == model.owner:
            yield Violation(
                "own-teacher",
                f"`{name_of(loss.reference)}` is of `{model.owner}` itself: dpo's reference is a "
                f"frozen model, such as policy({model.owner}@0)",
                violations.operand(index),
            )

    def _own_reference_rule(self, loss: LossOp, index: int) -> Iterator[Violation]:
        """In its first optimizer step a model has not left its own weights; later ones have."""
        if not isinstance(loss, KlLossOp) or self.optimizer_steps > 1:
            return
        y, owner = loss.trajectories.type, _weights(self.weights).owner
        if isinstance(y, TrajectoriesType) and is_own(loss.reference, y):
            yield Violation(
                "own-teacher",
                f"`{name_of(loss.reference)}` is of `{owner}` as this update starts, where its "
                "divergence and the gradient of it are zero: kl_loss's reference is a frozen "
                f"model, such as policy({owner}@0)",
                violations.operand(index),
            )

    def _repetition_rule(self) -> Iterator[Violation]:
        """The same term twice counts twice, which its coefficient can say."""
        seen: set[SSAValue] = set()
        for index, loss in enumerate(self.losses):
            if loss in seen:
                text = f"`{name_of(loss)}` is added twice: name it once"
                yield Violation("repeated-loss", text, violations.operand(index + 2))
            seen.add(loss)

    def _aggregation_rule(self) -> Iterator[Violation]:
        """Per-pair losses are averaged over pairs, per-token losses are not."""
        averaged = self.value("agg") == PAIR_MEAN
        for index, loss in enumerate(self.losses):
            maker = loss.owner
            if not isinstance(maker, LossOp) or isinstance(maker, PairLossOp) == averaged:
                continue
            why = "token: pair_mean is for losses of pairs" if averaged else "pair: write pair_mean"
            yield Violation(
                "pair-aggregation",
                f"{maker.SURFACE} is a loss a {why}, and one update has one agg",
                violations.operand(index + 2),
            )
            return

    def _followers_rule(self) -> Iterator[Violation]:
        """Terms without a correction of their own stand with a loss that has one."""
        makers = [loss.owner for loss in self.losses if isinstance(loss.owner, LossOp)]
        if len(makers) < len(self.losses):  # fused: which batches they train on is inside
            return
        policy = [maker for maker in makers if isinstance(maker, PolicyLossOp)]
        corrected = [trajectories_of(maker.operands[0]) for maker in policy]
        for index, maker in enumerate(makers):
            if maker.FOLLOWS and trajectories_of(maker.operands[0]) not in corrected:
                yield from self._alone(maker, index + 2)

    def _alone(self, loss: LossOp, index: int) -> Iterator[Violation]:
        """A loss that follows none must be of samples of this step's weights."""
        y = loss.operands[0]
        if isinstance(y.type, TrajectoriesType) and y.type.lag[1] > 0:
            yield Violation(
                "uncorrected-lag",
                f"{loss.SURFACE} has no correction of its own, and `{name_of(y)}` may be "
                f"{y.type.lag[1]} versions old: give this update a policy loss of `{name_of(y)}` "
                f"that covers it, or generate from {y.type.owner}@{index_name(self)}",
                violations.operand(index),
            )

    def _size_rule(self) -> Iterator[Violation]:
        parts = self.int_of("minibatches")
        for size, what in _batch_sizes(self.losses):
            if size % parts:
                yield Violation(
                    "uneven-minibatches",
                    f"{what} do not divide into {parts} minibatches",
                    violations.setting("minibatches"),
                )
                return


def _batch_sizes(losses: Sequence[SSAValue]) -> Iterator[tuple[int, str]]:
    """Samples that each loss trains on, and how a message says it."""
    for loss in losses:
        maker = loss.owner
        y = maker.operands[0] if isinstance(maker, LossOp) and maker.operands else None
        whole = trajectories_of(y) if y is not None else None
        match whole.type if whole is not None else None:
            case TrajectoriesType() as held:
                prompts, n = held.prompts.data, held.n
                yield prompts * n, f"{prompts} prompts x {n} = {prompts * n} samples"
            case PairsType() as held:
                yield held.size.data, f"{held.size.data} pairs"
            case _:
                pass


_ONE_UPDATE = "give both losses to one update"


def made_once(op: RpegOp, owner: str) -> Iterator[Violation]:
    """A state gets one new version per step."""
    reads_next = isinstance(op, UpdateOp) and _weights(op.weights).lag == (NEXT, NEXT)
    if reads_next or _made_before(op, owner):
        mend = "keep one of the two" if isinstance(op, KlControllerOp) else _ONE_UPDATE
        yield Violation(
            "yielded-twice",
            f"{owner}@{index_name(op)}+1 is made twice: a state gets one new version per step; "
            f"{mend}",
            violations.result(0),
        )


def _made_before(op: Operation, owner: str) -> bool:
    """Whether an operation above `op` in its step already makes the next version of a state."""
    step = op.parent_op()
    while step is not None and step.name != "rpeg.step":
        step = step.parent_op()
    if step is None:
        return False
    for other in step.walk():
        if other is op:
            return False
        if isinstance(other, UpdateOp | CopyOp | EmaOp | KlControllerOp) and other.makes() == owner:
            return True
    return False


@irdl_op_definition
class CopyOp(RpegOp):
    """The next version of a model is another's weights."""

    name = "rpeg.copy"
    SURFACE: ClassVar[str] = "copy"
    SCOPE: ClassVar[Scope] = "step"
    READS_NEXT: ClassVar[bool] = True
    source = operand("model")
    target = opt_prop_def(SymbolRefAttr)
    copied = gives("next")
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        weights = _weights(self.source)
        return [WeightsType(self.target or weights.model, weights.role, NEXT, NEXT)]

    def makes(self) -> str:
        """Name of the model whose next version this is."""
        return symbol_text(self.target) if self.target else _owner(self.source)

    def rules(self) -> Iterator[Violation]:
        yield from made_once(self, self.makes())
        yield from like_trunks(self, _owner(self.source), self.makes())


@irdl_op_definition
class EmaOp(RpegOp):
    """The next version is a moving average: decay x average + (1 - decay) x source."""

    name = "rpeg.ema"
    SURFACE: ClassVar[str] = "ema"
    SCOPE: ClassVar[Scope] = "step"
    READS_NEXT: ClassVar[bool] = True
    average = operand("model")
    source = operand(TRAINABLE)
    decay = required(FLOAT, "0.99", least=0, most=1)
    averaged = gives("next")
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        return [_weights(self.average).at(NEXT, NEXT)]

    def makes(self) -> str:
        """Name of the model whose next version this is."""
        return _owner(self.average)

    def rules(self) -> Iterator[Violation]:
        yield from made_once(self, self.makes())
        yield from like_trunks(self, _owner(self.source), self.makes())


@irdl_op_definition
class KlControllerOp(RpegOp):
    """The next KL coefficient, from how far the policy is from its reference."""

    name = "rpeg.kl_controller"
    SURFACE: ClassVar[str] = "kl_controller"
    SCOPE: ClassVar[Scope] = "batch"
    coef = operand("state.scalar")
    policy = operand("tok.logprob")
    reference = operand("tok.logprob")
    target = required(FLOAT, "0.05", above=0)
    horizon = required(INT, "10000", least=1)
    adapted = gives("next")
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        return [self.coef.type]

    def makes(self) -> str:
        """Name of the state whose next version this is."""
        return self.coef.type.symbol if isinstance(self.coef.type, StateType) else ""

    def rules(self) -> Iterator[Violation]:
        yield from made_once(self, self.makes())
        yield from divergence_violations(self, self.policy, self.reference)


OPS: tuple[type[RpegOp], ...] = (UpdateOp, CopyOp, EmaOp, KlControllerOp)
