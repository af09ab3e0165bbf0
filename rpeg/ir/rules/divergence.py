"""Rules of divergences: of the policy that sampled, from a model or version that is another one."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.ir import Operation, SSAValue

from rpeg.ir.rules import violations
from rpeg.ir.rules.violations import Violation
from rpeg.ir.text.naming import name_of, trajectories_of
from rpeg.ir.types.values import TokenFieldType, TrajectoriesType


def divergence_violations(
    op: Operation, policy: SSAValue, reference: SSAValue
) -> Iterator[Violation]:
    """`policy` is of the model that sampled the trajectories, `reference` is not."""
    y = trajectories_of(policy)
    held = policy.type
    if y is None or not isinstance(y.type, TrajectoriesType):
        return
    assert isinstance(held, TokenFieldType)
    places = list(op.operands)
    if held.owner != y.type.owner:
        yield Violation(
            "foreign-logprobs",
            f"`policy` is the log-probs of the model that sampled `{name_of(y)}` "
            f"({y.type.owner}); `{name_of(policy)}` was made by `{held.owner}`",
            violations.operand(places.index(policy)),
        )
    elif is_own(reference, y.type):
        yield Violation(
            "own-teacher",
            f"`{name_of(reference)}` is of `{held.owner}` itself: the reference is a frozen model, "
            f"such as policy({held.owner}@0)",
            violations.operand(places.index(reference)),
        )


def is_own(reference: SSAValue, y: TrajectoriesType) -> bool:
    """Whether log-probs are of the weights that the step starts with, of the model that sampled."""
    held = reference.type
    if not isinstance(held, TokenFieldType) or held.owner != y.owner:
        return False
    return not held.sampled or y.lag[1] <= 0
