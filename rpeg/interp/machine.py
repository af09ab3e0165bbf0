"""Running a pipeline: its declarations once, its step the number of times that it says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import ClassVar

import torch
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Operation

from rpeg.interp.declare import Declarations
from rpeg.interp.errors import InterpreterError
from rpeg.interp.frame import Frame, Handler, Surroundings
from rpeg.interp.greedy import Greedy, greedy
from rpeg.interp.handlers import HANDLERS
from rpeg.interp.oracle import Sampling, TrajectoryOracle
from rpeg.interp.values import Cursor, OptimizerState, Weights
from rpeg.interp.versions import Oldest, VersionOracle
from rpeg.interp.world import World
from rpeg.ir.ops.declare import PipelineOp
from rpeg.ir.ops.regions import KeepOp, YieldOp
from rpeg.ir.ops.step import StepOp
from rpeg.ir.types.values import CursorType, OptimizerType, StateType, WeightsType
from rpeg.runtime.recordings.recording import Recording


class Interpreter:
    """Executes a verified L0 pipeline, one operation after the other, all of it in one `dtype`.

    `dtype` and `routing` of the text are how an execution computes, not what: they change nothing
    here.
    """

    handlers: ClassVar[Mapping[type[Operation], Handler]] = HANDLERS
    """What runs within a step."""
    between_steps: ClassVar[tuple[type[Operation], ...]] = ()
    """What else it runs."""

    def __init__(
        self,
        module: ModuleOp,
        pipeline: str,
        world: World,
        seed: int = 0,
        oracle: TrajectoryOracle | None = None,
        versions: VersionOracle | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Reads models, data and verifiers; `versions` chooses in windows, by default the oldest.

        Raises InterpreterError for what it can't run.
        """
        self._pipeline = _find(module, pipeline)
        self._world = world
        self._step = self._pipeline.ops_of(StepOp)[0]
        _refuse_unknown(self._step, {*self.handlers, *self.between_steps, StepOp, YieldOp, KeepOp})
        self._around = Surroundings(
            declared=Declarations(self._pipeline, world, seed, dtype).things,
            oracle=oracle or Sampling(),
            versions=versions or Oldest(),
            seed=seed,
            horizon=self._step.steps,
        )

    def run(self, steps: int | None = None) -> Recording:
        """Runs from step 0 to the end, a `stop`, or for so many steps."""
        recording = Recording(self._pipeline.title)
        states = [self._initial(arg.type) for arg in self._step.states]
        history = self._empty_history()
        for i in range(self._step.steps if steps is None else min(steps, self._step.steps)):
            for weights in _weights(states):
                history[weights.model.name].append(weights)
            frame = Frame(i, self._around, history, self.handlers)
            states = frame.run(self._step.body.block, states)
            frame.record.metrics |= self._world.take_logged()
            recording.steps.append(frame.record)
            if frame.stopped:
                break
        recording.weights = {w.model.name: dict(w.tensors) for w in _weights(states)}
        return recording

    def greedy(self, recording: Recording) -> dict[str, Greedy]:
        """By the name of trajectories: what the final weights say to the last step's prompts."""
        last = recording.steps[-1]
        found: dict[str, Greedy] = {}
        for name, y in last.trajectories.items():
            start = self._around.declared[last.makers[name]]
            assert isinstance(start, Weights)
            tensors = recording.weights.get(start.model.name, start.tensors)
            found[name] = greedy(replace(start, tensors=tensors), y)
        return found

    def _empty_history(self) -> dict[str, list[Weights]]:
        models = (arg.type.owner for arg in self._step.states if isinstance(arg.type, WeightsType))
        return {name: [] for name in models}

    def _initial(self, state: Attribute) -> object:
        """A state's value before step 0."""
        match state:
            case WeightsType():
                return self._around.declared[state.owner]
            case OptimizerType():
                return OptimizerState({})
            case CursorType():
                data = self._around.declared[state.symbol]
                return Cursor(data, 0)  # type: ignore[arg-type]
            case StateType():
                return self._around.declared[state.symbol]
            case _:
                raise InterpreterError(f"the reference interpreter has no state of type {state}")


def _weights(states: Sequence[object]) -> Iterator[Weights]:
    return (state for state in states if isinstance(state, Weights))


def _refuse_unknown(step: StepOp, known: Set[type[Operation]]) -> None:
    """Raises InterpreterError for the first operation of another kind."""
    for op in step.walk():
        if type(op) not in known:
            raise InterpreterError.at(op, "the reference interpreter doesn't run this operation")


def _find(module: ModuleOp, name: str) -> PipelineOp:
    pipelines = [op for op in module.ops if isinstance(op, PipelineOp)]
    found = next((op for op in pipelines if op.title == name), None)
    if found is None:
        there = ", ".join(f"`{op.title}`" for op in pipelines)
        raise InterpreterError(f"there is no pipeline `{name}`; there is {there}")
    return found
