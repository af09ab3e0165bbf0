"""What reports call the stages and movements of a step: as the task graph does."""

from __future__ import annotations

from xdsl.ir import Operation

from rpeg.ir.base import RpegOp
from rpeg.ir.ops.movement import PublishOp, model_of, pool_of
from rpeg.ir.rsched import label_of
from rpeg.ir.stages import stage_name


def title(op: Operation) -> str:
    """A stage's name; of what is none its label, inside of a region what it does."""
    if isinstance(op, RpegOp) and op.PLACED:
        return stage_name(op)
    if label_of(op) is None and isinstance(op, PublishOp):
        return f"publish_{model_of(op)}_to_{pool_of(op)}"
    return label_of(op) or op.name.rpartition(".")[2]
