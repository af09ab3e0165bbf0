"""The values of one step while it runs, and what its operations may ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from torch import Tensor
from xdsl.ir import Block, Operation, SSAValue

from rpeg.interp.errors import InterpreterError
from rpeg.interp.oracle import TrajectoryOracle
from rpeg.interp.rectangle import Rectangle
from rpeg.interp.values import Place, Weights
from rpeg.interp.versions import VersionOracle
from rpeg.ir.text.naming import name_of, trajectories_of
from rpeg.runtime.recordings.recording import StepRecord
from rpeg.runtime.trajectories import Trajectories

T = TypeVar("T")

Handler = Callable[[Any, Any], Sequence[object]]
"""(operation, frame of its level) -> a value for each result."""


@dataclass(frozen=True)
class Surroundings:
    """What stays the same over the steps of a run."""

    declared: Mapping[str, object]
    """Initial weights, data sets and verifiers by their declared names."""
    oracle: TrajectoryOracle
    versions: VersionOracle
    seed: int
    horizon: int
    """Steps of the pipeline: LR schedules end there."""


@dataclass
class Frame:
    """One step."""

    step: int
    around: Surroundings
    older: Mapping[str, Sequence[Weights]]
    """By model: its weights as each step started, this one's last."""
    handlers: Mapping[type[Operation], Handler]
    record: StepRecord = field(default_factory=StepRecord)
    round: int | None = None
    """Of the collect whose region runs, if one does."""
    stopped: bool = False
    """A `stop` held: this step is the last."""
    _values: dict[SSAValue, object] = field(default_factory=dict)

    def run(self, block: Block, arguments: Sequence[object] = ()) -> list[object]:
        """Runs a block's operations in order; returns what its terminator yields."""
        self._values |= zip(block.args, arguments, strict=True)
        *body, ending = block.ops
        self._run(body)
        return [self._values[operand] for operand in ending.operands]

    def results(self, block: Block) -> list[object]:
        """Runs a block without terminator; returns all results of its operations, in order."""
        self._run(block.ops)
        return [self._values[result] for op in block.ops for result in op.results]

    def _run(self, ops: Iterable[Operation]) -> None:
        for op in ops:
            self._values |= zip(op.results, self.evaluate(op), strict=True)

    def evaluate(self, op: Operation) -> Sequence[object]:
        """A value for each result of an operation."""
        return self.handlers[type(op)](op, self)

    def microbatches(self, op: Operation, rows: Rectangle, chosen: Tensor) -> Sequence[Tensor]:
        """The `chosen` rows [k] of an update's minibatch in parts that go through the model one
        after the other: all of them at once.
        """
        return [chosen]

    def read(self, value: SSAValue, kind: type[T]) -> T:
        """An operand's value. Raises InterpreterError if it is of another kind."""
        held = self._values[value]
        if not isinstance(held, kind):
            found = type(held).__name__
            raise InterpreterError(f"`{name_of(value)}` is a {found} here, not a {kind.__name__}")
        return held

    def value(self, value: SSAValue) -> object:
        """An operand's value, whatever it is."""
        return self._values[value]

    def tensor(self, value: SSAValue) -> Tensor:
        """A per-token or per-response field."""
        return self.read(value, Tensor)

    def trajectories(self, field_: SSAValue) -> Trajectories:
        """The trajectories that a field belongs to, or the trajectories themselves."""
        owner = trajectories_of(field_)
        if owner is None:
            raise InterpreterError(f"`{name_of(field_)}` belongs to no trajectories")
        return self.read(owner, Trajectories)

    def place(self, result: SSAValue) -> Place:
        """Where an oracle finds a result."""
        return Place(self.step, self.title(result))

    def title(self, result: SSAValue) -> str:
        """A result's name in the record."""
        name = name_of(result)
        return name if self.round is None else f"{name}/{self.round}"
