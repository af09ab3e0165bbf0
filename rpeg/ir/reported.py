"""What a program reports of a step besides its metrics: rewards."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.ir import Operation, SSAValue

from rpeg.ir.ops.losses import LossOp
from rpeg.ir.ops.regions import CollectOp
from rpeg.ir.ops.sampling import GenerateOp
from rpeg.ir.text.naming import MOVES, trajectories_of, unmoved
from rpeg.ir.types.values import ResponseFieldType, TrajectoriesType


def reported_rewards(step: Operation) -> Iterator[tuple[SSAValue, list[SSAValue]]]:
    """Each batch of trajectories of a step, sampled or collected, with the rewards per response of
    it, in text order.

    Their means are reported every step, whether something reads the rewards or not.
    """
    ops = [op for op in step.regions[0].block.ops if op.name not in MOVES]
    rewards = [r for op in ops for r in op.results if _is_reward(r)]
    batches = (r for op in ops if isinstance(op, GenerateOp | CollectOp) for r in op.results)
    for y in batches:
        if isinstance(y.type, TrajectoriesType):
            yield y, [r for r in rewards if trajectories_of(r) is y]


def is_trained(y: SSAValue, step: Operation) -> bool:
    """Whether a loss of the step is of these trajectories."""
    losses = (op for op in step.walk() if isinstance(op, LossOp))
    return any(unmoved(op.operands[0]) is y for op in losses)


def _is_reward(value: SSAValue) -> bool:
    return isinstance(value.type, ResponseFieldType) and value.type.what == "reward"
