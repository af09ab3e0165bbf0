"""What a run's clock calls the stages of a pipeline: `y` is timed as `generate`."""

from __future__ import annotations

from collections.abc import Mapping

from rpeg.ir.base import RpegOp
from rpeg.ir.ops.declare import PipelineOp
from rpeg.ir.ops.effects import EvalLossOp, EvalOp
from rpeg.ir.ops.movement import model_of
from rpeg.ir.ops.sampling import GenerateOp, LogprobOp, ScoreOp, ValuesOp
from rpeg.ir.ops.updates import UpdateOp
from rpeg.ir.stages import stage_name, stages
from rpeg.ir.types.values import ToolType, VerifierType


def timed_names(pipeline: PipelineOp) -> Mapping[str, str]:
    """The clock's name of each stage of the step, by the name that a plan has for it.

    Two stages that sample are one to the clock.
    """
    step = next(op for op in pipeline.body.block.ops if op.name == "rpeg.step")
    return {name: _timed(op) for name, op in stages(step).items()}


def _timed(op: RpegOp) -> str:
    match op:
        case GenerateOp():
            return "generate"
        case LogprobOp():
            return f"logprob_{model_of(op)}"
        case ValuesOp():
            return f"values_{model_of(op)}"
        case ScoreOp():
            return f"score_{_scorer(op)}"
        case UpdateOp():
            return f"update_{op.makes()}"
        case EvalOp() | EvalLossOp():
            return f"eval_{stage_name(op)}"
        case _:
            return stage_name(op)


def _scorer(op: ScoreOp) -> str | None:
    held = op.scorer.type
    return held.symbol if isinstance(held, VerifierType | ToolType) else model_of(op)
