"""From rewards to losses: pure functions of fields, and of trajectories with them."""

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import SSAValue

from rpeg.ir.base import RpegOp
from rpeg.ir.ops import losses, preference, rewards
from rpeg.ir.text.naming import trajectories_of
from rpeg.ir.types.values import TrajectoriesType
from rpeg.passes.programs.handlers import compiles
from rpeg.passes.programs.program import Program


@compiles(
    rewards.WeightedSumOp,
    losses.KlLossOp,
    losses.EntropyBonusOp,
    losses.ValueLossOp,
    losses.DistillOp,
    losses.CrossEntropyOp,
    preference.DpoOp,
    preference.RewardLossOp,
)
def _pure(program: Program, op: RpegOp) -> None:
    things = [program.value(v) for v in op.operands]
    program.results(op, program.call(op, op.SURFACE, *things, settings=op.properties))


@compiles(
    rewards.SumTokensOp,
    rewards.ReturnsOp,
    rewards.GroupAdvantageOp,
    rewards.RemaxAdvantageOp,
)
def _of_trajectories(program: Program, op: RpegOp) -> None:
    """Functions of fields that also need the trajectories: their groups and masks."""
    things = with_trajectories(program, *op.operands)
    program.results(op, program.call(op, op.SURFACE, *things, settings=op.properties))


def with_trajectories(program: Program, *fields: SSAValue) -> list[SSAValue]:
    """What the trajectories of some fields became, and the fields."""
    return [program.value(v) for v in (_trajectories(fields[0]), *fields)]


def _trajectories(field: SSAValue) -> SSAValue:
    y = trajectories_of(field)
    assert y is not None, "a verified field belongs to trajectories"
    return y


@compiles(rewards.ImportanceOp)
def _importance(program: Program, op: RpegOp) -> None:
    """It takes the run, to whose metrics it adds its weights."""
    things = [program.run, *with_trajectories(program, *op.operands)]
    program.results(op, program.call(op, op.SURFACE, *things, settings=op.properties))


@compiles(rewards.KlPenaltyOp)
def _kl_penalty(program: Program, op: RpegOp) -> None:
    assert isinstance(op, rewards.KlPenaltyOp)
    things = with_trajectories(program, op.reward, op.policy, op.reference)
    state = op.coef_state
    keywords = {"coef": program.value(state)} if state is not None else {}
    made = program.call(op, op.SURFACE, *things, keywords=keywords, settings=op.properties)
    program.results(op, made)


@compiles(rewards.GaeOp)
def _gae(program: Program, op: RpegOp) -> None:
    assert isinstance(op, rewards.GaeOp)
    settings = {"gamma": op.gamma, "lambda_": op.lambda_}
    things = with_trajectories(program, op.rewards, op.values)
    program.results(op, program.call(op, op.SURFACE, *things, settings=settings))


@compiles(rewards.WhitenOp)
def _whiten(program: Program, op: RpegOp) -> None:
    assert isinstance(op, rewards.WhitenOp)
    things = with_trajectories(program, op.advantages)
    keywords = {"groups": groups_of(program, op.advantages)}
    settings = {"count": StringAttr(op.counted)}
    program.results(op, program.call(op, op.SURFACE, *things, keywords=keywords, settings=settings))


def groups_of(program: Program, field: SSAValue) -> SSAValue:
    """The process groups over which the batch of a field is spread."""
    y = _trajectories(field).type
    assert isinstance(y, TrajectoriesType)
    return program.shares[y.owner]


@compiles(losses.PpoClipOp, losses.CispoOp, losses.PolicyGradientOp)
def _policy_loss(program: Program, op: RpegOp) -> None:
    assert isinstance(op, losses.PolicyLossOp)
    weight = op.weights()
    things = [program.value(v) for v in op.operands if v is not weight]
    keywords = {"weight": program.value(weight)} if weight is not None else {}
    made = program.call(op, op.SURFACE, *things, keywords=keywords, settings=op.properties)
    program.results(op, made)
