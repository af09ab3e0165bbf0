"""Process groups side by side: an operation runs as soon as what it reads is there."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from rpeg.interp.errors import InterpreterError
from rpeg.interp.l1.buffers import Group, Queue, Values, groups_of
from rpeg.interp.l1.frame import PlacedFrame
from rpeg.interp.l1.timing import Task, Timing
from rpeg.interp.values import Weights
from rpeg.interp.world import World
from rpeg.ir.ops.buffers import PopOp, PushOp
from rpeg.ir.ops.movement import PublishOp, ReshardOp, TransferOp, pool_of
from rpeg.ir.ops.sampling import StaleOp
from rpeg.ir.ops.step import StepOp
from rpeg.ir.text.naming import name_of
from rpeg.ir.types.buffer import BufferType
from rpeg.runtime.recordings.recording import StepRecord

MOVEMENT = PublishOp | ReshardOp | TransferOp
"""What a process group does not stop for: weights and rows arrive beside its work."""
MISSING = object()
"""A value that is not there yet."""


@dataclass
class Process:
    """A process group, or an operation without one: it runs its own in order, step by step."""

    name: str
    ops: list[Operation] = field(default_factory=list[Operation])
    step: int = 0
    place: int = 0

    @property
    def task(self) -> Task:
        """What it runs next."""
        return Task(self.step, self.ops[self.place])

    def advance(self) -> None:
        """It has run that."""
        self.place = (self.place + 1) % len(self.ops)
        self.step += self.place == 0


class Execution:
    """A run of a step's operations on their processes."""

    def __init__(
        self,
        step: StepOp,
        initial: Sequence[object],
        steps: int,
        timing: Timing,
        make: Callable[[int], PlacedFrame],
    ) -> None:
        self.steps = steps
        self.records: dict[int, StepRecord] = {}
        self._block = step.body.block
        self._yielded = step.ending.operands
        self._initial = initial
        self._timing = timing
        self._make = make
        self._frames: dict[int, PlacedFrame] = {}
        self._processes = list(_processes(self._block))
        self._queues = {q.kind.title: q for q in initial if isinstance(q, Queue)}
        self._pushing: dict[Task, deque[Values]] = {}
        self._reach = max((op.int_of("high") for op in _windows(step)), default=0)

    def run(self, world: World) -> None:
        """Runs all steps, or up to a `stop`. Raises InterpreterError for a deadlock."""
        while waiting := [p for p in self._processes if p.step < self.steps]:
            ready = [p for p in waiting if self._lack(p.task) is None]
            if not ready:
                raise InterpreterError(self._deadlock(waiting))
            process = ready[self._timing.next([p.task for p in ready])]
            frame = self._frame(process.step)
            if self._run(process.task, frame):
                process.advance()
            for name, value in world.take_logged().items():
                metrics = frame.record.metrics
                metrics[name] = metrics.get(name, 0.0) + value
            if frame.stopped:
                self.steps = min(self.steps, frame.step + 1)
            self._forget()

    def weights(self) -> Iterator[Weights]:
        """The weights among the states, as the last step leaves them."""
        states = (self._find(self.steps, arg) for arg in self._block.args)
        return (state for state in states if isinstance(state, Weights))

    # ---- one task

    def _run(self, task: Task, frame: PlacedFrame) -> bool:
        """Runs a task as far as it goes; returns whether it is done."""
        match task.op:
            case PushOp():
                return self._push(task, task.op, frame)
            case PopOp() as op:
                queue = self._queue(op)
                frame.record.metrics[f"{queue.kind.title}/dropped"] = queue.dropped
                held = [*queue.pop(op.int_of("groups")), queue]
                frame.bind(dict(zip(op.results, held, strict=True)))
            case StaleOp() as op:
                frame.bind({op.stale: self._find(_oldest(op, task.step), op.weights)})
            case op:
                frame.bind({v: self._find(task.step, v) for v in reads(op)})
                frame.bind(dict(zip(op.results, frame.evaluate(op), strict=True)))
        return True

    def _push(self, task: Task, op: PushOp, frame: PlacedFrame) -> bool:
        queue = self._queue(op)
        if task not in self._pushing:
            rows = [self._find(task.step, value) for value in op.rows]
            self._pushing[task] = deque(groups_of(rows))
        waiting = self._pushing[task]
        while waiting and queue.room:
            queue.push(Group(task.step, waiting.popleft()))
        frame.bind({op.pushed: queue})
        return not waiting

    def _lack(self, task: Task) -> str | None:
        """What a task waits for; None if it can run."""
        op, step = task.op, task.step
        if isinstance(op, StaleOp):
            step = _oldest(op, step)
        for value in reads(op):
            if self._find(step, value) is MISSING:
                return f"`{name_of(value)}` of step {step}"
        if isinstance(op, PushOp) and not self._queue(op).room:
            return f"room in {self._queue(op)}"
        if isinstance(op, PopOp) and not self._queue(op).has(op.int_of("groups"), step):
            return f"{op.int_of('groups')} groups in {self._queue(op)}"
        return None

    def _queue(self, op: PushOp | PopOp) -> Queue:
        held = op.buffer.type
        assert isinstance(held, BufferType)
        return self._queues[held.title]

    def _deadlock(self, waiting: Sequence[Process]) -> str:
        at_buffers = [p for p in waiting if isinstance(p.task.op, PushOp | PopOp)]
        lines = (
            f"in step {p.step} {p.name} waits for {self._lack(p.task)}"
            for p in at_buffers or waiting
        )
        return f"deadlock: {'; '.join(lines)}; nothing else can run"

    # ---- values of steps

    def _frame(self, step: int) -> PlacedFrame:
        if step not in self._frames:
            self._frames[step] = self._make(step)
            self.records[step] = self._frames[step].record
        return self._frames[step]

    def _find(self, step: int, value: SSAValue) -> object:
        """A value of a step, which for a state is one of the step before; or MISSING."""
        while step not in self._frames or not self._frames[step].holds(value):
            if not isinstance(value, BlockArgument) or value.owner is not self._block:
                return MISSING
            if step == 0:
                return self._initial[value.index]
            step, value = step - 1, self._yielded[value.index]
        return self._frames[step].value(value)

    def _forget(self) -> None:
        """Drops the steps that nothing can read any more, but for their last states."""
        oldest = min(p.step for p in self._processes) - self._reach
        for step in [step for step in self._frames if step < oldest]:
            args: list[SSAValue] = [*self._block.args]
            self._frame(step + 1).bind({arg: self._find(step + 1, arg) for arg in args})
            del self._frames[step]


def _oldest(op: StaleOp, step: int) -> int:
    """The oldest version that a window allows, version 0 near the start."""
    return max(0, step - op.int_of("high"))


def _windows(step: StepOp) -> Iterator[StaleOp]:
    return (op for op in step.walk() if isinstance(op, StaleOp))


def _processes(block: Block) -> Iterator[Process]:
    """The process groups of a step, and each operation that belongs to none."""
    groups: dict[str, Process] = {}
    for op in block.ops:
        if op is block.last_op:
            continue
        pool = None if isinstance(op, MOVEMENT) else _pool(op)
        if pool is None:
            yield Process(f"{op.name} ({', '.join(map(name_of, op.results))})", [op])
        else:
            groups.setdefault(pool, Process(f"`{pool}`")).ops.append(op)
    yield from groups.values()


def _pool(op: Operation) -> str | None:
    """The process group of an operation, or of the first one inside."""
    return next((p for inner in op.walk() if (p := pool_of(inner)) is not None), None)


def reads(op: Operation) -> list[SSAValue]:
    """What an operation and its regions read of the step around it, but for buffers."""
    inside = set(op.walk())
    values = dict.fromkeys(v for inner in inside for v in inner.operands)
    return [v for v in values if v.owner not in inside and not isinstance(v.type, BufferType)]
