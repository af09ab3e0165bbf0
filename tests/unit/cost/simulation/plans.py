"""Random plans: stages on pools in a fixed order, windows, buffers, as the task graph has them."""

from __future__ import annotations

import random
from itertools import pairwise

from rpeg.cost.period.graph import Edge, Task, TaskGraph


def random_plan(seed: int, ordered: bool = True) -> TaskGraph:
    """Generation, stages after it, an update that it waits for; each on one of a few pools."""
    draw = random.Random(seed)
    pools = [f"pool{n}" for n in range(draw.randint(1, 3))]
    tasks = tuple(
        Task(f"t{n}", draw.uniform(0.1, 10.0), draw.choice([*pools, *pools, None]), f"t{n}")
        for n in range(draw.randint(3, 9))
    )
    edges = [*_data(tasks, draw), *_across(tasks, draw)]
    return TaskGraph(tasks, (*edges, *(_order(tasks) if ordered else ())))


def _data(tasks: tuple[Task, ...], draw: random.Random) -> list[Edge]:
    """Every task reads what one or more before it make."""
    names = [task.name for task in tasks]
    return [
        Edge(source, name)
        for number, name in enumerate(names[1:], start=1)
        for source in draw.sample(names[:number], draw.randint(1, min(number, 2)))
    ]


def _across(tasks: tuple[Task, ...], draw: random.Random) -> list[Edge]:
    """New weights reach the first task; a buffer holds it back."""
    first, last = tasks[0].name, tasks[-1].name
    reader = draw.choice(tasks[1:]).name
    return [
        Edge(last, first, 1 + draw.randint(0, 3), "staleness"),
        Edge(reader, first, draw.randint(1, 4), "back-pressure"),
        Edge(last, last, 1, "state"),
    ]


def _order(tasks: tuple[Task, ...]) -> list[Edge]:
    """Each pool does its tasks in turn, then those of the next step."""
    edges = []
    for pool in {task.resource for task in tasks if task.resource is not None}:
        names = [task.name for task in tasks if task.resource == pool]
        edges += [Edge(a, b, 0, "order") for a, b in pairwise(names)]
        edges.append(Edge(names[-1], names[0], 1, "order"))
    return edges
