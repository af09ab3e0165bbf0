"""From a pipeline at L2 to its task graph: one representative of each data-parallel class.

Each operation of the step becomes a task of its pool; one that runs others (`every`, `collect`,
`fuse`) a task for each of these that takes time; one that streams a task for each chunk.
What moves between pools has the link between them, and so do new weights where the plan lets
training go on meanwhile. A pool runs its sequence in order. Of a channel's batches no more are on
their way than fit (`rpeg.cost.period.orders`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from xdsl.ir import Operation

from rpeg.cost.period.chunks import Chunks
from rpeg.cost.period.graph import Edge, Task, TaskGraph
from rpeg.cost.period.orders import back_pressure, books, resource_orders
from rpeg.cost.period.schedule import Schedule, overlapping
from rpeg.ir.base import RpegOp
from rpeg.ir.ops.declare import PipelineOp
from rpeg.ir.ops.movement import PublishOp, TransferOp, model_of, pool_of
from rpeg.ir.pools import made_on
from rpeg.ir.stages import stage_name

Seconds = Callable[[Operation], float]
"""Of an operation, on average per step: the share of its `every` and the rounds of its `collect`
included. Of one with a region, each operation inside is asked; itself only if none takes time."""
Chains = Mapping[str, Sequence[Task]]
"""Label -> its tasks, one after the other."""


def task_graph(
    pipeline: PipelineOp, seconds: Seconds, apart: Mapping[str, str] | None = None
) -> TaskGraph:
    """The task graph of a pipeline's step.

    Args:
        pipeline: at L2, with a sequence for each pool.
        seconds: what each operation takes.
        apart: label -> a pool of cores that runs it beside its own pool's sequence.

    Raises:
        GraphError: the pipeline is not at L2.
    """
    schedule = Schedule.of(pipeline)
    chunks = Chunks.of(schedule)
    places = _places(schedule, apart or {})
    chains = {
        label: _chain(label, op, seconds, places[label], chunks.number(label))
        for label, op in schedule.tasks.items()
    }
    edges = [
        *_within(chains),
        *_dependences(schedule, chains, chunks),
        *resource_orders(schedule, chains, chunks),
        *back_pressure(schedule, chains),
        *books(schedule, chains),
    ]
    tasks = tuple(task for chain in chains.values() for task in chain)
    return TaskGraph(tasks, tuple(_first_of_each(edges)))


# ---- tasks


def _places(schedule: Schedule, apart: Mapping[str, str]) -> dict[str, str]:
    """Label -> the resource that runs it."""
    pools = {label: pool for pool, labels in schedule.sequences.items() for label in labels}
    return {
        label: apart.get(label) or _link(op) or pools[label] for label, op in schedule.tasks.items()
    }


def _link(op: Operation) -> str | None:
    """The link that moves what an operation sends while pools do other work."""
    match op:
        case TransferOp():
            return f"{made_on(op.moved)} to {pool_of(op)}"
        case PublishOp() if overlapping(op) is not None:
            return f"{made_on(op.weights)} to {pool_of(op)}"
        case _:
            return None


def _chain(
    label: str, op: Operation, seconds: Seconds, resource: str, chunks: int
) -> Sequence[Task]:
    pieces = list(_pieces(label, op, seconds))
    if chunks == 1:
        return [Task(piece.name, piece.seconds, resource, piece.stage) for piece in pieces]
    each = sum(piece.seconds for piece in pieces) / chunks
    names = (f"{label} {number}/{chunks}" for number in range(1, chunks + 1))
    return [Task(name, each, resource, _stage(op, label)) for name in names]


@dataclass(frozen=True)
class _Piece:
    """An operation that takes time, of a task."""

    name: str
    stage: str
    seconds: float


def _pieces(label: str, op: Operation, seconds: Seconds) -> Iterator[_Piece]:
    """Of a task, what it runs; itself, unless there are others inside that take time."""
    inside = (o for o in op.walk() if isinstance(o, RpegOp) and o is not op)
    timed = [(o, taken) for o in inside if (taken := seconds(o))]
    names: dict[str, int] = {}
    for inner, taken in timed:
        stage = _stage(inner, _called(inner))
        names[stage] = names.get(stage, 0) + 1
        again = f" {names[stage]}" if names[stage] > 1 else ""
        yield _Piece(f"{label}/{stage}{again}", stage, taken)
    if not timed:
        yield _Piece(label, _stage(op, label), seconds(op))


def _called(inner: RpegOp) -> str:
    """An operation that is not a stage, inside of another."""
    if isinstance(inner, PublishOp):
        return f"publish_{model_of(inner)}_to_{pool_of(inner)}"
    return inner.word.removeprefix("rpeg.")


def _stage(op: Operation, otherwise: str) -> str:
    return stage_name(op) if isinstance(op, RpegOp) and op.PLACED else otherwise


# ---- edges


def _within(chains: Chains) -> Iterator[Edge]:
    """Of a task's parts, one after the other: who needs the last one needs all."""
    for chain in chains.values():
        for before, after in pairwise(chain):
            yield Edge(before.name, after.name)


def _dependences(schedule: Schedule, chains: Chains, chunks: Chunks) -> Iterator[Edge]:
    for wait in schedule.waits():
        sources, targets = chains[wait.source], chains[wait.target]
        if wait.why != "data" or (wait.source, wait.target) not in chunks.follows:
            yield Edge(sources[-1].name, targets[0].name, wait.turns, wait.why)
            continue
        for number, target in enumerate(targets, 1):
            last = chunks.needed(wait.source, wait.target, number)
            yield Edge(sources[last - 1].name, target.name, wait.turns, wait.why)


def _first_of_each(edges: Sequence[Edge]) -> Iterator[Edge]:
    """One edge for each pair and distance: the first reason counts."""
    found: dict[tuple[str, str, int], Edge] = {}
    for edge in edges:
        found.setdefault((edge.source, edge.target, edge.distance), edge)
    yield from found.values()
