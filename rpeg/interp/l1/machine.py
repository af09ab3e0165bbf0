"""Running a pipeline of L1: process groups side by side, each in the order of its own stages.

Groups are as far apart as the text permits: a window of versions lets one run ahead, a buffer lets
it wait. What may run next is the timing's choice; that no choice changes a number is what makes the
order of the text one of many.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Operation

from rpeg.interp.errors import InterpreterError
from rpeg.interp.frame import Handler
from rpeg.interp.l1.buffers import Queue
from rpeg.interp.l1.execution import Execution
from rpeg.interp.l1.frame import PlacedFrame
from rpeg.interp.l1.handlers import HANDLERS
from rpeg.interp.l1.timing import InOrder, Timing
from rpeg.interp.machine import Interpreter
from rpeg.interp.oracle import TrajectoryOracle
from rpeg.interp.world import World
from rpeg.ir.ops.buffers import PopOp, PushOp
from rpeg.ir.ops.sampling import StaleOp
from rpeg.ir.rules.ranks import groups_of
from rpeg.ir.types.buffer import BufferType
from rpeg.runtime.recordings.recording import Recording


class PlacedInterpreter(Interpreter):
    """Executes a verified L1 pipeline in one process, in the order that a timing chooses."""

    handlers: ClassVar[Mapping[type[Operation], Handler]] = HANDLERS
    between_steps: ClassVar[tuple[type[Operation], ...]] = (PushOp, PopOp, StaleOp)

    def __init__(
        self,
        module: ModuleOp,
        pipeline: str,
        world: World,
        seed: int = 0,
        oracle: TrajectoryOracle | None = None,
        timing: Timing | None = None,
    ) -> None:
        """Reads models, data and verifiers. Raises InterpreterError for what it can't run."""
        super().__init__(module, pipeline, world, seed, oracle)
        self._timing = timing or InOrder()
        self._groups = {name: op.ranks for name, op in groups_of(self._pipeline).items()}

    def run(self, steps: int | None = None) -> Recording:
        """Runs from step 0 to the end, a `stop`, or for so many steps.

        Raises InterpreterError where process groups wait for each other.
        """
        states = [self._initial(arg.type) for arg in self._step.states]
        upto = self._step.steps if steps is None else min(steps, self._step.steps)
        run = Execution(self._step, states, upto, self._timing, self._frame)
        run.run(self._world)
        recording = Recording(self._pipeline.title)
        recording.steps = [run.records[step] for step in range(run.steps)]
        for weights in run.weights():  # those that are trained come before published ones
            recording.weights.setdefault(weights.model.name, dict(weights.tensors))
        return recording

    def _frame(self, step: int) -> PlacedFrame:
        around, groups = self._around, self._groups
        return PlacedFrame(step, around, {}, self.handlers, groups=groups, timing=self._timing)

    def _initial(self, state: Attribute) -> object:
        if not isinstance(state, BufferType):
            return super()._initial(state)
        if state.order.data != "fifo":
            raise InterpreterError(
                f"`{state.title}` is {state.order.data}: what is newest is a matter of time; the "
                "reference interpreter runs fifo"
            )
        return Queue(state)
