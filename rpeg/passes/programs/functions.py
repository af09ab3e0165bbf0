"""From rewards to losses: pure functions of fields, and of trajectories with them."""

from rpeg.ir.base import RpegOp
from rpeg.ir.naming import trajectories_of
from rpeg.ir.ops import losses, rewards
from rpeg.passes.programs.handlers import compiles
from rpeg.passes.programs.program import Program


@compiles(rewards.WeightedSumOp, losses.KlLossOp, losses.EntropyBonusOp, losses.CrossEntropyOp)
def _pure(program: Program, op: RpegOp) -> None:
    things = [program.value(v) for v in op.operands]
    program.results(op, program.call(op, op.SURFACE, *things, settings=op.properties))


@compiles(rewards.GroupAdvantageOp, rewards.ImportanceOp)
def _of_trajectories(program: Program, op: RpegOp) -> None:
    """Functions of fields that also need the trajectories: their groups and masks."""
    y = trajectories_of(op.operands[0])
    assert y is not None
    things = [program.value(v) for v in (y, *op.operands)]
    program.results(op, program.call(op, op.SURFACE, *things, settings=op.properties))


@compiles(losses.PpoClipOp, losses.CispoOp, losses.PolicyGradientOp)
def _policy_loss(program: Program, op: RpegOp) -> None:
    assert isinstance(op, losses.PolicyLossOp)
    weight = op.weights()
    things = [program.value(v) for v in op.operands if v is not weight]
    keywords = {"weight": program.value(weight)} if weight is not None else {}
    made = program.call(op, op.SURFACE, *things, keywords=keywords, settings=op.properties)
    program.results(op, made)
