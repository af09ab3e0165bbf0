"""Which operations of a step are live: those with a purpose of their own, and what they read.

States close the circle: what a step yields is needed only if the next step needs it.
"""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from rpeg.ir.ops.step import StepOp


def needed(step: StepOp, purposes: Iterable[Operation]) -> Needed:
    """What these operations of the step need, themselves included."""
    found = Needed(step)
    for op in purposes:
        found.add(op)
    return found


class Needed:
    """A growing set of operations and states, closed under what its members read."""

    def __init__(self, step: StepOp) -> None:
        self._step = step
        self.operations: set[Operation] = {step, step.ending}
        self.states: set[SSAValue] = set()
        """Arguments of the step's block."""

    def add(self, op: Operation) -> None:
        """Takes in an operation, what is around it, what ends its region, and what all these
        read.
        """
        if op in self.operations:
            return
        self.operations.add(op)
        parent = op.parent_op()
        if parent is not None:
            self.add(parent)
        for region in op.regions:
            if region.block.last_op is not None:
                self.add(region.block.last_op)
        for value in op.operands:
            self.read(value)

    def read(self, value: SSAValue) -> None:
        """Takes in what makes a value: in this step, and for a state in the step before."""
        if not isinstance(value, BlockArgument):
            assert isinstance(value.owner, Operation)
            self.add(value.owner)
        elif value not in self.states and _of(value.owner, self._step):
            self.states.add(value)
            self.read(self._step.ending.operands[value.index])


def _of(block: Block, step: StepOp) -> bool:
    return block.parent_op() is step
