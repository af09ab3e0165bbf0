"""Why a step takes so long: the critical cycle, hop by hop, and what would shorten it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rpeg.cost.period import cycles
from rpeg.cost.period.cycles import Cycle
from rpeg.cost.period.graph import Edge, Task, TaskGraph, Why

FASTER = 0.9
"""Of the seconds of a stage, in `what_if`."""
VISIBLE = 1e-3
"""Least share of the period that a change saves which is worth a line."""


@dataclass(frozen=True)
class Hop:
    """Tasks of one stage on the critical cycle, one after the other."""

    task: str
    seconds: float
    resource: str | None
    why: Why
    """What made it wait for the hop before; the first one's is before it around the cycle."""
    steps: int
    """How many steps later it runs than the hop before."""
    via: tuple[str, ...] = ()
    """Tasks that take no time, on the way from the hop before."""


def hops(cycle: Cycle) -> tuple[Hop, ...]:
    """A cycle without the tasks that take no time, in its order; chunks of a stage are one hop."""
    arrivals = (cycle.edges[-1], *cycle.edges[:-1])
    found: list[Hop] = []
    waited: list[Edge] = []
    for task, edge in zip(cycle.tasks, arrivals, strict=True):
        waited.append(edge)
        if task.seconds:
            _add(found, task, waited)
            waited = []
    if waited:  # it ends with tasks that take no time, in front of the first hop
        found[0] = _after(_hop(cycle.tasks[-1], waited), cycle.tasks[-1].name, found[0])
    return tuple(found)


def _after(around: Hop, end: str, first: Hop) -> Hop:
    """The first hop, behind tasks at the end of the cycle that take no time."""
    return replace(
        first,
        why=around.why if around.steps else first.why,
        steps=around.steps + first.steps,
        via=(*around.via, end, *first.via),
    )


def _add(found: list[Hop], task: Task, waited: Sequence[Edge]) -> None:
    hop = _hop(task, waited)
    last = found[-1] if found else None
    if last and last.resource == hop.resource and _stage(last.task) == task.stage and not hop.steps:
        found[-1] = replace(last, task=task.stage or "", seconds=last.seconds + hop.seconds)
    else:
        found.append(hop)


def _stage(name: str) -> str:
    """The stage of a task that is a chunk of it: `y 3/8`."""
    return name.partition(" ")[0]


def _hop(task: Task, waited: Sequence[Edge]) -> Hop:
    across = [edge.why for edge in waited if edge.distance]
    why = across[0] if across else waited[-1].why
    steps = sum(edge.distance for edge in waited)
    via = tuple(edge.source for edge in waited[1:])
    return Hop(task.name, task.seconds, task.resource, why, steps, via)


@dataclass(frozen=True)
class Change:
    """Something that could be otherwise, and the period that it would lead to."""

    what: str
    period_s: float


def what_if(graph: TaskGraph) -> tuple[Change, ...]:
    """Changes that would shorten the period, those that save most first: each stage a tenth faster,
    weights a step older, room for one more batch on its way.
    """
    now = cycles.period(graph)
    found = [Change(what, cycles.period(other)) for what, other in _others(graph)]
    worth = (change for change in found if change.period_s < (1.0 - VISIBLE) * now)
    return tuple(sorted(worth, key=lambda change: change.period_s))


def _others(graph: TaskGraph) -> Iterator[tuple[str, TaskGraph]]:
    reasons = {edge.why for edge in graph.edges}
    if "staleness" in reasons:
        yield "weights may be one step older", _longer(graph, "staleness")
    if "back-pressure" in reasons:
        yield "room for one more batch between pools", _longer(graph, "back-pressure")
    for stage in dict.fromkeys(task.stage for task in graph.tasks if task.seconds):
        yield f"`{stage}` takes a tenth less", _faster(graph, stage)


def _longer(graph: TaskGraph, why: Why) -> TaskGraph:
    edges = (replace(e, distance=e.distance + 1) if e.why == why else e for e in graph.edges)
    return TaskGraph(graph.tasks, tuple(edges))


def _faster(graph: TaskGraph, stage: str | None) -> TaskGraph:
    tasks = (replace(t, seconds=FASTER * t.seconds) if t.stage == stage else t for t in graph.tasks)
    return TaskGraph(tuple(tasks), graph.edges)
