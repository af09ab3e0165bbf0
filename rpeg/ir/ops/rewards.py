"""Operations on rewards and advantages: pure functions of per-token and per-response fields."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, traits_def
from xdsl.traits import Pure

from rpeg.ir.base import RpegOp, index_name
from rpeg.ir.definitions import gives, hidden_optional, many, maybe, operand, required, setting
from rpeg.ir.ops.sampling import GenerateOp, ScoreOp
from rpeg.ir.rules import violations
from rpeg.ir.rules.divergence import divergence_violations
from rpeg.ir.rules.violations import Violation
from rpeg.ir.text.naming import name_of, trajectories_of, unmoved
from rpeg.ir.types.values import (
    ResponseFieldType,
    TokenFieldType,
    TrajectoriesType,
    is_unknown,
)
from rpeg.ir.vocabulary.settings import FLOAT, FLOAT_OR_STATE, list_of, word
from rpeg.ir.vocabulary.signature import Scope


def _token(field: Attribute) -> TokenFieldType:
    assert isinstance(field, TokenFieldType)
    return field


@irdl_op_definition
class WeightedSumOp(RpegOp):
    """The sum of several rewards, each with its weight."""

    name = "rpeg.weighted_sum"
    SURFACE: ClassVar[str] = "weighted_sum"
    rewards = many("seq.reward", at_least_one=True)
    weights = required(list_of(FLOAT))
    reward = gives("seq.reward")
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        return [ResponseFieldType("reward")]

    def rules(self) -> Iterator[Violation]:
        weights = self.value("weights")
        assert isinstance(weights, tuple)
        if len(weights) != len(self.rewards):
            yield Violation(
                "weights-count",
                f"weighted_sum has {len(self.rewards)} rewards and {len(weights)} weights",
            )


@irdl_op_definition
class KlPenaltyOp(RpegOp):
    """Reward minus coef x KL, per token."""

    name = "rpeg.kl_penalty"
    SURFACE: ClassVar[str] = "kl_penalty"
    reward = operand("seq.reward | tok.reward")
    policy = operand("tok.logprob")
    reference = operand("tok.logprob")
    coef_state = hidden_optional("state")
    coef = maybe(FLOAT_OR_STATE, least=0)
    estimator = setting(word("k1", "k2", "k3"), "k1")
    penalised = gives("tok.reward")
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        return [TokenFieldType.of("reward")]

    def rules(self) -> Iterator[Violation]:
        if self.coef is None and self.coef_state is None:
            yield Violation(
                "missing-setting", "kl_penalty needs the setting `coef`: write coef=0.001"
            )
        yield from divergence_violations(self, self.policy, self.reference)


@irdl_op_definition
class SumTokensOp(RpegOp):
    """The sum of a response's token rewards."""

    name = "rpeg.sum_tokens"
    SURFACE: ClassVar[str] = "sum_tokens"
    rewards = operand("tok.reward")
    reward = gives("seq.reward")
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        return [ResponseFieldType("reward")]


@irdl_op_definition
class ReturnsOp(RpegOp):
    """Discounted sums of the rewards that follow each token."""

    name = "rpeg.returns"
    SURFACE: ClassVar[str] = "returns"
    rewards = operand("tok.reward | seq.reward")
    gamma = setting(FLOAT, 1.0, least=0, most=1)
    sums = gives("tok.returns")
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        return [TokenFieldType.of("returns")]


@irdl_op_definition
class GaeOp(RpegOp):
    """Generalised advantage estimation: advantages, and the returns that the critic learns."""

    name = "rpeg.gae"
    SURFACE: ClassVar[str] = "gae"
    rewards = operand("tok.reward")
    values = operand("tok.value")
    gamma = setting(FLOAT, 1.0, least=0, most=1)
    lambda_ = setting(FLOAT, 0.95, least=0, most=1, name="lambda")
    advantages = gives("tok.advantage")
    returns = gives("tok.returns")
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        return [TokenFieldType.of("advantage"), TokenFieldType.of("returns")]


@irdl_op_definition
class GroupAdvantageOp(RpegOp):
    """Rewards less their prompt's: GRPO mean/std, Dr.GRPO mean/none, RLOO leave_one_out/none."""

    name = "rpeg.group_advantage"
    SURFACE: ClassVar[str] = "group_advantage"
    SCOPE: ClassVar[Scope] = "group"
    rewards = operand("seq.reward")
    baseline = required(word("mean", "leave_one_out"))
    scale = required(word("std", "none"))
    advantages = gives("seq.advantage")
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        return [ResponseFieldType("advantage")]

    def rules(self) -> Iterator[Violation]:
        y = trajectories_of(self.rewards)
        if y is not None and isinstance(y.type, TrajectoriesType) and y.type.n == 1:
            yield Violation(
                "group-of-one",
                "group_advantage compares the responses of one prompt: generate needs n >= 2",
            )


@irdl_op_definition
class RemaxAdvantageOp(RpegOp):
    """Rewards less that of the greedy response to the same prompt (ReMax)."""

    name = "rpeg.remax_advantage"
    SURFACE: ClassVar[str] = "remax_advantage"
    TWO_BATCHES: ClassVar[bool] = True
    rewards = operand("seq.reward")
    baseline = operand("seq.reward")
    advantages = gives("seq.advantage")
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        return [ResponseFieldType("advantage")]

    def rules(self) -> Iterator[Violation]:
        y, greedy = (trajectories_of(v) for v in (self.rewards, self.baseline))
        if y is None or greedy is None or is_unknown(y.type):
            return
        problem = _baseline_problem(y, greedy) or _scorer_problem(self.rewards, self.baseline)
        if problem is not None:
            yield Violation("remax-baseline", problem, violations.operand(1))


def _baseline_problem(y: SSAValue, greedy: SSAValue) -> str | None:
    """Why trajectories are not one greedy response to each of the prompts of others."""
    base = greedy.type
    if not isinstance(base, TrajectoriesType):
        return None
    mine, its = _generate(y), _generate(greedy)
    prompts = [unmoved(op.prompts) if op else None for op in (mine, its)]
    weights = [op.weights.type if op else None for op in (mine, its)]
    if y is greedy:
        return (
            f"the baseline is the rewards of `{name_of(y)}` themselves: score another response to "
            "each of its prompts, generated with n=1, temperature=0.0"
        )
    if prompts[0] is not prompts[1]:
        return (
            f"`{name_of(greedy)}` and `{name_of(y)}` answer different prompts: generate both "
            "from one batch"
        )
    if base.n != 1:
        return f"the baseline is one response per prompt: generate `{name_of(greedy)}` with n=1"
    heat = its.value("temperature") if its else 0.0 if base.cut else 1.0
    if isinstance(heat, float) and heat > 0.0:
        return f"the baseline is greedy: generate `{name_of(greedy)}` with temperature=0.0"
    if weights[0] != weights[1]:
        return (
            f"`{name_of(greedy)}` and `{name_of(y)}` are of different weights: generate both from "
            "the same version of one model"
        )
    return None


def _scorer_problem(rewards: SSAValue, baseline: SSAValue) -> str | None:
    """Why two scores are not on one scale; None where one of them is not a score itself."""
    makers = [unmoved(value).owner for value in (rewards, baseline)]
    scorers = [op.scorer for op in makers if isinstance(op, ScoreOp)]
    if len(scorers) < 2 or scorers[0].type == scorers[1].type:
        return None
    first, second = (name_of(scorer) for scorer in scorers)
    return f"`{first}` scores the responses and `{second}` the baseline: score both with `{first}`"


def _generate(y: SSAValue) -> GenerateOp | None:
    """The operation that samples trajectories; None for those of a region or a buffer."""
    return y.owner if isinstance(y.owner, GenerateOp) else None


@irdl_op_definition
class WhitenOp(RpegOp):
    """Zero mean, unit deviation over the whole batch: a barrier for streaming.

    `count` says what counts once in the mean and deviation: each token, or each response. Without
    it, per-token advantages count by tokens and per-response ones by responses.
    """

    name = "rpeg.whiten"
    SURFACE: ClassVar[str] = "whiten"
    SCOPE: ClassVar[Scope] = "batch"
    advantages = operand("tok.advantage | tok.returns | seq.advantage")
    count = maybe(word("tokens", "responses"))
    whitened = gives("tok.advantage | seq.advantage")
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        if isinstance(self.advantages.type, ResponseFieldType):
            return [ResponseFieldType("advantage")]
        return [TokenFieldType.of("advantage")]

    @property
    def counted(self) -> str:
        """What each number counts for: `tokens` or `responses`."""
        own = "responses" if isinstance(self.advantages.type, ResponseFieldType) else "tokens"
        return own if self.count is None else self.text_of("count")

    def rules(self) -> Iterator[Violation]:
        if self.counted == "responses" and isinstance(self.advantages.type, TokenFieldType):
            yield Violation(
                "whiten-count",
                f"`{name_of(self.advantages)}` has a number for each token: write count=tokens, "
                "or leave it out",
                violations.setting("count"),
            )


@irdl_op_definition
class ImportanceOp(RpegOp):
    """Off-policy correction: weights above the cap are cut, or those outside of a band masked."""

    name = "rpeg.importance"
    SURFACE: ClassVar[str] = "importance"
    current = operand("tok.logprob")
    behaviour = operand("tok.logprob")
    floor = setting(FLOAT, 0.0, least=0)
    cap = setting(FLOAT, 2.0, above=0)
    mode = setting(word("truncate", "mask"), "truncate")
    level = setting(word("token", "sequence"), "token")
    weight = gives("tok.weight")
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        return [TokenFieldType.of("weight", _token(self.current.type).owner)]

    def rules(self) -> Iterator[Violation]:
        yield from self._band_rules()
        current, behaviour = _token(self.current.type), _token(self.behaviour.type)
        if not behaviour.sampled:
            yield Violation(
                "importance-operands",
                f"`{name_of(self.behaviour)}` is recomputed; importance needs the log-probs that "
                "generate returned",
                violations.operand(1),
            )
        elif current.sampled or current.owner != behaviour.owner:
            yield Violation(
                "importance-operands",
                f"importance needs logprob({behaviour.owner}@{index_name(self)}, ...) first, the "
                "log-probs of the trained weights",
                violations.operand(0),
            )

    def _band_rules(self) -> Iterator[Violation]:
        floor, cap = self.float_of("floor"), self.float_of("cap")
        if floor > cap:
            yield Violation(
                "importance-band",
                f"floor={floor:g} is above cap={cap:g}: nothing would be trained on",
                violations.setting("floor"),
            )
        elif floor > 0 and self.value("mode") != "mask":
            yield Violation(
                "importance-band",
                f"floor={floor:g} masks weights below it: write mode=mask, or remove it",
                violations.setting("floor"),
            )


OPS: tuple[type[RpegOp], ...] = (
    WeightedSumOp,
    KlPenaltyOp,
    SumTokensOp,
    ReturnsOp,
    GaeOp,
    GroupAdvantageOp,
    RemaxAdvantageOp,
    WhitenOp,
    ImportanceOp,
)
