"""What a program reports of a step besides its metrics: rewards."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.ir import Operation, SSAValue

from rpeg.ir.ops.regions import CollectOp
from rpeg.ir.ops.sampling import GenerateOp
from rpeg.ir.text.naming import trajectories_of
from rpeg.ir.types.values import ResponseFieldType, TrajectoriesType


def reported_rewards(step: Operation) -> Iterator[tuple[SSAValue, list[SSAValue]]]:
    """Each batch of trajectories of a step, sampled or collected, with the rewards a response of
    it, in text order.

    Their means are reported every step, whether something reads the rewards or not.
    """
    ops = list(step.regions[0].block.ops)
    rewards = [r for op in ops for r in op.results if _is_reward(r)]
    batches = (r for op in ops if isinstance(op, GenerateOp | CollectOp) for r in op.results)
    for y in batches:
        if isinstance(y.type, TrajectoriesType):
            yield y, [r for r in rewards if trajectories_of(r) is y]


def _is_reward(value: SSAValue) -> bool:
    return isinstance(value.type, ResponseFieldType) and value.type.what == "reward"
