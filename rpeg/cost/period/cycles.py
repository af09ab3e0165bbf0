"""Cycles of a task graph: the one that its period waits for, and those that no run gets out of.

A self-timed run settles into the period max over cycles of seconds / distance, the maximum cycle
ratio (Dasdan, ACM TODAES 9(4), 2004, compares the algorithms). It is found by guesses from below:
with a guess T every edge weighs `seconds(source) - T * distance`; a cycle of positive weight has a
larger ratio, which is the next guess; where there is none, T is the maximum. Each guess is the
ratio of a cycle, so a few of them do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rpeg.cost.period.graph import Edge, Task, TaskGraph

ROUNDING = 1e-12
"""Of the seconds of a graph: a smaller gain of a path is the rounding of floats."""


@dataclass(frozen=True)
class Cycle:
    """A closed walk through a graph: each edge leads from its task to the next one's."""

    tasks: tuple[Task, ...]
    edges: tuple[Edge, ...]

    @property
    def seconds(self) -> float:
        """Time of its tasks."""
        return sum(task.seconds for task in self.tasks)

    @property
    def distance(self) -> int:
        """Steps that one turn takes."""
        return sum(edge.distance for edge in self.edges)

    @property
    def period(self) -> float:
        """Seconds per step that it allows at best."""
        return self.seconds / self.distance


class Deadlock(ValueError):
    """Tasks of one step that wait for each other in a circle."""

    def __init__(self, cycle: Cycle) -> None:
        names = [task.name for task in cycle.tasks]
        super().__init__(f"zero-distance cycle: {' -> '.join([*names, names[0]])}")
        self.cycle = cycle


def critical_cycle(graph: TaskGraph) -> Cycle | None:
    """The cycle with the most seconds per step; None where none takes time.

    Raises:
        Deadlock: a cycle stays within one step.
    """
    edges = _in_order(graph)
    found: Cycle | None = None
    while True:
        longer = _Paths(graph, edges, found.period if found else 0.0).positive_cycle()
        if longer is None or (found is not None and longer.period <= found.period):
            return found
        found = longer


def period(graph: TaskGraph) -> float:
    """Seconds per step in the steady state; 0 where no step waits for another.

    Raises:
        Deadlock: a cycle stays within one step.
    """
    cycle = critical_cycle(graph)
    return cycle.period if cycle is not None else 0.0


def starts(graph: TaskGraph, seconds_per_step: float) -> dict[str, float]:
    """When each task of a step starts if steps follow each other so many seconds apart: the
    earliest times, in seconds from the first task's start. The period must not be too short.
    """
    paths = _Paths(graph, _in_order(graph), seconds_per_step)
    if paths.positive_cycle() is not None:
        raise ValueError(f"no schedule takes {seconds_per_step} s per step: its period is longer")
    first = min(paths.longest.values(), default=0.0)
    return {task.name: paths.longest[task.name] - first for task in graph.tasks}


def latency(graph: TaskGraph) -> float:
    """Seconds of the longest path within one step.

    Raises:
        Deadlock: a cycle stays within one step.
    """
    ends = {task.name: task.seconds for task in graph.tasks}
    for edge in _in_order(graph):
        if edge.distance == 0:
            end = ends[edge.source] + graph.by_name[edge.target].seconds
            ends[edge.target] = max(ends[edge.target], end)
    return max(ends.values(), default=0.0)


def topological(graph: TaskGraph) -> tuple[Task, ...]:
    """Tasks in an order in which those of one step can run.

    Raises:
        Deadlock: a cycle stays within one step.
    """
    now = [edge for edge in graph.edges if edge.distance == 0]
    after: dict[str, list[str]] = {task.name: [] for task in graph.tasks}
    waits = {task.name: 0 for task in graph.tasks}
    for edge in now:
        after[edge.source].append(edge.target)
        waits[edge.target] += 1
    order = [name for name, count in waits.items() if not count]
    for name in order:  # grows as it goes
        for follower in after[name]:
            waits[follower] -= 1
            if not waits[follower]:
                order.append(follower)
    if len(order) < len(graph.tasks):
        left = set(waits) - set(order)
        arrivals = {e.target: e for e in now if e.source in left and e.target in left}
        raise Deadlock(_closed(graph, arrivals, next(iter(arrivals))))
    return tuple(graph.by_name[name] for name in order)


def _in_order(graph: TaskGraph) -> list[Edge]:
    """Edges by source in topological order, so that one round carries a path through a step."""
    number = {task.name: index for index, task in enumerate(topological(graph))}
    return sorted(graph.edges, key=lambda edge: number[edge.source])


class _Paths:
    """Longest paths to every task under a guess of the period (Bellman and Ford)."""

    def __init__(self, graph: TaskGraph, edges: Sequence[Edge], guess: float) -> None:
        self._graph = graph
        self._edges = [(e, graph.by_name[e.source].seconds - guess * e.distance) for e in edges]
        self._least = ROUNDING * sum(task.seconds for task in graph.tasks)
        self.longest = {task.name: 0.0 for task in graph.tasks}
        self._arrivals: dict[str, Edge] = {}

    def positive_cycle(self) -> Cycle | None:
        """A cycle of positive weight; None once the paths are the longest."""
        while self._extended():
            around = _repeated(self._arrivals)
            if around is not None:
                return _closed(self._graph, self._arrivals, around)
        return None

    def _extended(self) -> bool:
        """One round over the edges: whether any path became longer."""
        longest, longer = self.longest, False
        for edge, weight in self._edges:
            length = longest[edge.source] + weight
            if length > longest[edge.target] + self._least:
                longest[edge.target], longer = length, True
                self._arrivals[edge.target] = edge
        return longer


def _repeated(arrivals: Mapping[str, Edge]) -> str | None:
    """A task on a cycle of the edges by which the longest paths arrive, if there is one: only a
    cycle of positive weight closes there.
    """
    finished: set[str] = set()
    for start in arrivals:
        seen: set[str] = set()
        for name in _back(arrivals, start):
            if name in seen:
                return name
            if name in finished:
                break
            seen.add(name)
        finished |= seen
    return None


def _back(arrivals: Mapping[str, Edge], name: str) -> Iterator[str]:
    """The tasks from which a path arrives, last first; without end on a cycle."""
    yield name
    while name in arrivals:
        name = arrivals[name].source
        yield name


def _closed(graph: TaskGraph, arrivals: Mapping[str, Edge], start: str) -> Cycle:
    """The cycle of `arrivals` that going back from `start` runs into, from its earliest task of
    the graph on.
    """
    walked: dict[str, Edge] = {}
    for name in _back(arrivals, start):
        if name in walked:
            break
        walked[name] = arrivals[name]
    around = list(walked.values())[list(walked).index(name) :]
    edges = around[::-1]
    number = {task.name: index for index, task in enumerate(graph.tasks)}
    first = min(range(len(edges)), key=lambda index: number[edges[index].source])
    edges = [*edges[first:], *edges[:first]]
    return Cycle(tuple(graph.by_name[edge.source] for edge in edges), tuple(edges))
