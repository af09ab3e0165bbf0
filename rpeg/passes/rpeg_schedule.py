"""`rpeg-schedule`: from L1 to L2, the order in which each process group runs its tasks."""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr, SymbolRefAttr
from xdsl.ir import Block, Operation, Region

from rpeg.ir.ops.declare import PipelineOp
from rpeg.ir.ops.movement import PublishOp, RanksOp, TransferOp, model_of, pool_of
from rpeg.ir.ops.regions import EveryOp
from rpeg.ir.ops.sampling import GetOp, StaleOp
from rpeg.ir.ops.step import StepOp
from rpeg.ir.ops.updates import UpdateOp
from rpeg.ir.pools import pools_at
from rpeg.ir.rsched import (
    TASK,
    EdgeOp,
    SequenceOp,
    TaskOp,
    across_steps,
    dependences,
    label_of,
    uses,
)
from rpeg.ir.rules.ranks import groups_of
from rpeg.ir.stages import stage_name
from rpeg.ir.text.naming import name_of, trajectories_of, unmoved
from rpeg.passes.base import Levels, PassRefused, RpegPass, pipelines, step
from rpeg.passes.pipelining import Ahead, steps_ahead
from rpeg.passes.statistics import Meanings

Before = Mapping[Operation, Mapping[Operation, str]]
"""Task -> the tasks that run before it, and why."""


@dataclass(frozen=True)
class RpegSchedulePass(RpegPass):
    """
    Labels the operations of the step as tasks and writes the sequence of each process group:
    program order, with readers of an old version before what replaces it, and the edges that cross
    steps. Samples of a window of versions are made as far ahead as it reaches, where the weights
    are trained in the same process group.

    After:
        rsched.sequence @all {
          rsched.task "q"
          rsched.task "y"
          ...
          rsched.edge "publish_actor" to "y" distance 1
        }
    """

    name = "rpeg-schedule"
    LEVELS: ClassVar[Levels] = {"L1": "L2"}
    STATISTICS: ClassVar[Meanings] = {
        "tasks scheduled": "tasks of all sequences",
        "dependences across steps": "edges to the tasks of later steps",
    }

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        for pipeline in pipelines(op):
            for sequence in _schedule(pipeline):
                for line in sequence.body.block.ops:
                    crosses = isinstance(line, EdgeOp)
                    self.count("dependences across steps" if crosses else "tasks scheduled")


def _schedule(pipeline: PipelineOp) -> list[SequenceOp]:
    """The sequences of a pipeline's process groups, which are in the pipeline then."""
    body = step(pipeline)
    label(body)
    order, groups = program_order(body), list(groups_of(pipeline).values())
    ahead = steps_ahead(body)
    made = [_sequence(body, group, _of_pool(order, group), ahead) for group in groups]
    for sequence in reversed(made):
        pipeline.body.block.insert_op_after(sequence, body)
    return made


def _sequence(body: StepOp, group: RanksOp, tasks: Sequence[Operation], ahead: Ahead) -> SequenceOp:
    block = Block()
    sequence = SequenceOp.create(
        properties={"pool": SymbolRefAttr(group.title)}, regions=[Region(block)]
    )
    sequence.location = body.location
    for op in sorted(tasks, key=lambda op: -ahead.get(op, -1)):
        block.add_op(TaskOp.of(label_of(op) or "", ahead.get(op)))
    labels = sequence.labels
    for (source, target), distance in across_steps(body).items():
        if target in labels:
            block.add_op(EdgeOp.of(source, target, distance))
    return sequence


def _of_pool(order: Sequence[Operation], group: RanksOp) -> list[Operation]:
    """The tasks of a pool in their order. It sends what it makes at once; what comes from other
    pools it takes when it needs it, so that it waits no sooner than it has to.
    """
    tasks: list[Operation] = []
    coming: list[TransferOp] = []
    for task in order:
        if not _is_of(task, group):
            continue
        if isinstance(task, TransferOp) and pool_of(task) == group.title:
            coming.append(task)
            continue
        needed = [t for t in coming if _needs(task, t) or _measures(task)]
        coming = [t for t in coming if t not in needed]
        tasks += [*needed, task]
    return tasks + coming


def _measures(task: Operation) -> bool:
    """Whether it comes after the step's work, and after the report of it."""
    return isinstance(task, EveryOp) and not task.carried


def _is_of(task: Operation, group: RanksOp) -> bool:
    pools = pools_at(task)
    return not pools or group.title in pools


def _needs(task: Operation, arrival: TransferOp) -> bool:
    """Whether a task reads what arrives, or a field of those trajectories."""
    fields = (y for v in uses(task) if (y := trajectories_of(v)) is not None)
    return arrival.arrived in uses(task) or unmoved(arrival.arrived) in fields


def label(op: StepOp) -> None:
    """Gives every task of a step a label of its own: the name of its stage or first result."""
    taken: set[str] = set()
    for task in op.body.block.ops:
        if isinstance(task, GetOp | StaleOp) or task is op.body.block.last_op:
            continue
        wanted = _wanted(task)
        name, number = wanted, 1
        while name in taken:
            number += 1
            name = f"{wanted}_{number}"
        taken.add(name)
        task.attributes[TASK] = StringAttr(name)


def _wanted(op: Operation) -> str:
    match op:
        case UpdateOp():
            return stage_name(op)
        case PublishOp():
            return f"publish_{model_of(op)}"
        case TransferOp():
            return f"{name_of(op.moved)}_to_{pool_of(op)}"
        case EveryOp():
            return f"every_{op.int_of('steps')}"
        case _:
            hint = op.results[0].name_hint if op.results else None
            return hint or op.name.rpartition(".")[2]


def program_order(op: StepOp) -> list[Operation]:
    """The tasks, every dependence kept: in the order of the text wherever that is free."""
    tasks = [o for o in op.body.block.ops if label_of(o) is not None]
    number = {o: k for k, o in enumerate(tasks)}
    before: dict[Operation, dict[Operation, str]] = {o: {} for o in tasks}
    for first, second, why in dependences(op.body.block):
        if first in number and second in number:
            before[second][first] = why
    order: list[Operation] = []
    ready = [number[o] for o in tasks if not before[o]]
    waits = {o: len(firsts) for o, firsts in before.items()}
    while ready:
        task = tasks[heapq.heappop(ready)]
        order.append(task)
        for follower in (o for o in tasks if task in before[o]):
            waits[follower] -= 1
            if not waits[follower]:
                heapq.heappush(ready, number[follower])
    if len(order) < len(tasks):
        raise _cycle(before, set(order))
    return order


def _cycle(before: Before, done: set[Operation]) -> PassRefused:
    """A refusal that goes once around a cycle of tasks that wait for each other."""
    seen: list[Operation] = []
    task = next(o for o in before if o not in done)
    while task not in seen:
        seen.append(task)
        task = next(o for o in before[task] if o not in done)
    around = [*seen[seen.index(task) :], task]
    waits = (
        f"`{label_of(later)}` runs after `{label_of(first)}` ({before[later][first]})"
        for later, first in pairwise(around)
    )
    return PassRefused(task, f"no order of the step's tasks works: {', '.join(waits)}")
