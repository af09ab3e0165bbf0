"""The task graph of one step: what runs where, for how long, and what waits for what.

A graph holds one representative of each data-parallel class and describes every step at once: an
edge of distance `d` says that the target of step `i` waits for the source of step `i - d`. With
`t(v, i)` the start of `v` in step `i`,

    t(target, i) >= t(source, i - distance) + seconds(source)

so the period of a self-timed run is the greatest, over the cycles of the graph, of the cycle's
seconds over its distance. A resource runs one of its tasks at a time; the order in which it does so
is itself edges (`why="order"`), the last of which goes back to the first a step on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

Why = Literal["data", "state", "order", "staleness", "back-pressure", "books"]


@dataclass(frozen=True)
class Task:
    """One piece of work of a step.

    Attributes:
        name: its label, unique in its graph.
        seconds: how long it runs.
        resource: what it has to itself meanwhile (a pool's GPUs, its cores, a link), if anything.
        stage: the stage it is part of, which reports add up by.
    """

    name: str
    seconds: float
    resource: str | None
    stage: str | None


@dataclass(frozen=True)
class Edge:
    """The target starts no sooner than the source of `distance` steps before has ended.

    Attributes:
        source: the task waited for.
        target: the task that waits.
        distance: steps between the two: 0 in one step, `1 + k` over weights `k` steps old,
            a buffer's capacity for back-pressure.
        why: what makes it wait.
    """

    source: str
    target: str
    distance: int = 0
    why: Why = "data"


class GraphError(ValueError):
    """A graph that says nothing: a name used twice, an edge to no task, a negative time."""


@dataclass(frozen=True)
class TaskGraph:
    """Tasks and the edges between them; names are checked once, when it is made.

    Raises:
        GraphError: a task's name is not unique, an edge names no task, a time is negative or not
            a number, or a distance is negative.
    """

    tasks: tuple[Task, ...]
    edges: tuple[Edge, ...]

    def __post_init__(self) -> None:
        for problem in _problems(self):
            raise GraphError(problem)

    @cached_property
    def by_name(self) -> dict[str, Task]:
        """Each task under its name."""
        return {task.name: task for task in self.tasks}

    @cached_property
    def resources(self) -> dict[str, tuple[Task, ...]]:
        """The tasks of each resource, in the order of `tasks`."""
        held: dict[str, list[Task]] = {}
        for task in self.tasks:
            if task.resource is not None:
                held.setdefault(task.resource, []).append(task)
        return {name: tuple(tasks) for name, tasks in held.items()}

    def without(self, *reasons: Why) -> TaskGraph:
        """The graph less the edges that are there for one of `reasons`."""
        return TaskGraph(self.tasks, tuple(edge for edge in self.edges if edge.why not in reasons))


def _problems(graph: TaskGraph) -> Iterator[str]:
    names = Counter(task.name for task in graph.tasks)
    yield from (f"two tasks are called `{name}`" for name, uses in names.items() if uses > 1)
    for task in graph.tasks:
        if not 0 <= task.seconds < float("inf"):
            yield f"task `{task.name}` takes {task.seconds} s: a time is finite and not negative"
    for edge in graph.edges:
        yield from (
            f"an edge names `{end}`, which is not a task"
            for end in (edge.source, edge.target)
            if end not in names
        )
        if edge.distance < 0:
            yield f"the edge from `{edge.source}` to `{edge.target}` goes {edge.distance} steps"
