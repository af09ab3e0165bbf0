"""What a program reports of a step besides its metrics: rewards."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.ir import Operation, SSAValue

from rpeg.ir.naming import trajectories_of
from rpeg.ir.ops.sampling import GenerateOp
from rpeg.ir.types import ResponseFieldType


def reported_rewards(step: Operation) -> Iterator[tuple[GenerateOp, list[SSAValue]]]:
    """Each generate of a step with the rewards a response of its trajectories, in text order.

    Their means are reported every step, whether something reads the rewards or not.
    """
    results = [r for op in step.regions[0].block.ops for r in op.results]
    rewards = [r for r in results if _is_reward(r)]
    for op in step.regions[0].block.ops:
        if isinstance(op, GenerateOp):
            yield op, [r for r in rewards if trajectories_of(r) is op.trajectories]


def _is_reward(value: SSAValue) -> bool:
    return isinstance(value.type, ResponseFieldType) and value.type.what == "reward"
