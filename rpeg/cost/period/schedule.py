"""The schedule of a pipeline at L2, by label: its tasks, who runs them in which order, what waits.

Distances are between turns of the loops: a task that runs `ahead 2` belongs, in turn i, to step
i + 2. So an edge over `d` steps is one over `d + ahead(source) - ahead(target)` turns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import Operation

from rpeg.cost.period.graph import GraphError, Why
from rpeg.ir.ops.buffers import PopOp, PushOp
from rpeg.ir.ops.declare import PipelineOp
from rpeg.ir.ops.movement import PublishOp, TransferOp, clause_of, model_of, pool_of
from rpeg.ir.ops.step import StepOp
from rpeg.ir.ops.updates import UpdateOp
from rpeg.ir.pools import made_on, task_around
from rpeg.ir.rsched import EdgeOp, SequenceOp, dependences, label_of, labelled, uses
from rpeg.ir.text.naming import trajectories_of
from rpeg.ir.types.buffer import BufferType
from rpeg.ir.types.flow import symbol_text
from rpeg.ir.types.values import TrajectoriesType
from rpeg.ir.vocabulary.settings import python_value


@dataclass(frozen=True)
class Wait:
    """A task waits for another, so many turns of their loops before."""

    source: str
    target: str
    turns: int
    why: Why


@dataclass(frozen=True)
class Schedule:
    """What L2 says of a pipeline's step."""

    tasks: Mapping[str, Operation]
    """Label -> operation, in the order of the text."""
    sequences: Mapping[str, Sequence[str]]
    """Pool -> labels of its tasks, in their order."""
    ahead: Mapping[str, int]
    """Label -> how many steps ahead of its turn's a task runs; most run 0."""
    lines: Sequence[EdgeOp]
    """Dependences across steps."""

    @staticmethod
    def of(pipeline: PipelineOp) -> Schedule:
        """The schedule of a pipeline. Raises GraphError if it is not at L2."""
        step = pipeline.ops_of(StepOp)[0]
        sequences = pipeline.ops_of(SequenceOp)
        if not sequences:
            raise GraphError(f"`{pipeline.title}` has no schedule: run rpeg-schedule first")
        ahead = {n: t.steps_ahead for s in sequences for n, t in s.tasks.items() if t.steps_ahead}
        lines = [op for s in sequences for op in s.body.block.ops if isinstance(op, EdgeOp)]
        orders = {symbol_text(s.pool): list(s.labels) for s in sequences}
        return Schedule(labelled(step), orders, ahead, lines)

    def waits(self) -> Iterator[Wait]:
        """What of its own step, or of one before, each task waits for."""
        yield from self._within_step()
        yield from self._across_steps()
        yield from self._overtaken()

    def turns(self, source: str, target: str, steps: int) -> int:
        """A distance in steps, counted in turns."""
        return steps + self.ahead.get(source, 0) - self.ahead.get(target, 0)

    def _wait(self, source: str, target: str, steps: int, why: Why) -> Wait:
        return Wait(source, target, self.turns(source, target, steps), why)

    def _within_step(self) -> Iterator[Wait]:
        block = next(iter(self.tasks.values())).parent_block()
        assert block is not None, "tasks are operations of a step"
        for before, after, _ in dependences(block):
            source, target = label_of(before), label_of(after)
            if source is not None and target is not None:
                reads = any(value.owner is before for value in uses(after))
                yield self._wait(source, target, 0, "data" if reads else "state")

    def _across_steps(self) -> Iterator[Wait]:
        for line in self.lines:
            source, target = line.source.data, line.target.data
            maker, reader = self.tasks[source], self.tasks[target]
            steps = int(line.distance.value.data)
            if isinstance(maker, PopOp) and isinstance(reader, PushOp):
                yield self._wait(source, target, _steps_that_fit(reader), "back-pressure")
            else:
                weights = isinstance(maker, PublishOp)
                yield self._wait(source, target, steps, "staleness" if weights else "state")

    def _overtaken(self) -> Iterator[Wait]:
        """Weights that leave while the next step goes on are there until they have left."""
        for label, op in self.tasks.items():
            if isinstance(op, PublishOp) and (update := overlapping(op)) is not None:
                target = label_of(task_around(update))
                if target is not None:
                    yield self._wait(label, target, 1, "state")


def _steps_that_fit(push: PushOp) -> int:
    """How many steps' groups a buffer holds."""
    held, y = push.buffer.type, push.rows[0].type
    assert isinstance(held, BufferType) and isinstance(y, TrajectoriesType)
    return max(1, held.groups // y.prompts.data)


def overlapping(publish: PublishOp) -> UpdateOp | None:
    """The update whose weights leave for another pool while its own goes on, if they do."""
    maker = publish.weights.owner
    if not isinstance(maker, Operation) or pool_of(publish) == made_on(publish.weights):
        return None
    updates = (op for op in task_around(maker).walk() if isinstance(op, UpdateOp))
    update = next((op for op in updates if op.makes() == model_of(publish)), None)
    clause = clause_of(update, "publish") if update is not None else None
    meanwhile = clause is not None and python_value(clause.settings.get("overlap")) is True
    return update if meanwhile else None


@dataclass(frozen=True)
class Channel:
    """What one task sends to another pool in each step."""

    source: str
    target: str
    """Pools."""
    labels: Sequence[str]
    """Its transfers, in the order of the text."""
    capacity: int
    """Batches that were sent and not yet taken, at most: the window of their weights, or 1."""


def channels(schedule: Schedule) -> list[Channel]:
    """The channels of a schedule, in the order of the text."""
    found: dict[tuple[Operation, str, str], list[str]] = {}
    for label, op in schedule.tasks.items():
        if isinstance(op, TransferOp) and isinstance(op.moved.owner, Operation):
            ends = made_on(op.moved) or "", pool_of(op) or ""
            found.setdefault((task_around(op.moved.owner), *ends), []).append(label)
    return [
        Channel(source, target, labels, max(1, _window(schedule.tasks[labels[0]])))
        for (_, source, target), labels in found.items()
    ]


def _window(transfer: Operation) -> int:
    """How many steps older than the newest the weights may be that sampled what moves."""
    y = trajectories_of(transfer.operands[0])
    return y.type.lag[1] if y is not None and isinstance(y.type, TrajectoriesType) else 0
