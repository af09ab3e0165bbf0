"""Graphs to test with: written in words, drawn at random, solved by force, run step by step."""

import math
import random
from collections.abc import Iterator, Sequence

from rpeg.cost.period.graph import Edge, Task, TaskGraph


def ring(*seconds: float, distance: int = 1) -> TaskGraph:
    """Tasks `0`, `1`, ... one after the other, and back to the first over so many steps."""
    tasks = tuple(Task(str(i), s, None, None) for i, s in enumerate(seconds))
    number = len(tasks)
    edges = tuple(
        Edge(str(i), str((i + 1) % number), distance if i == number - 1 else 0)
        for i in range(number)
    )
    return TaskGraph(tasks, edges)


def random_graph(seed: int, most: int = 8) -> TaskGraph:
    """Up to `most` tasks; edges against their numbers cross a step, so that no cycle is stuck."""
    draw = random.Random(seed)
    number = draw.randint(1, most)
    tasks = tuple(
        Task(str(i), draw.choice((0.0, draw.uniform(0, 9))), None, None) for i in range(number)
    )
    edges = []
    for _ in range(draw.randint(0, 3 * number)):
        source, target = draw.randrange(number), draw.randrange(number)
        least = 0 if source < target else 1
        edges.append(Edge(str(source), str(target), draw.randint(least, 3)))
    return TaskGraph(tasks, tuple(edges))


def simple_cycles(graph: TaskGraph) -> Iterator[Sequence[Edge]]:
    """Every closed walk that meets no task twice, each once: it starts at its first task."""
    number = {task.name: i for i, task in enumerate(graph.tasks)}

    def onward(walk: list[Edge], start: str) -> Iterator[Sequence[Edge]]:
        here = walk[-1].target if walk else start
        for edge in graph.edges:
            if edge.source != here or number[edge.target] < number[start]:
                continue
            if edge.target == start:
                yield [*walk, edge]
            elif all(edge.target != old.target for old in walk):
                yield from onward([*walk, edge], start)

    for task in graph.tasks:
        yield from onward([], task.name)


def period_by_force(graph: TaskGraph) -> float:
    """The largest ratio of all cycles."""
    ratios = (
        sum(graph.by_name[e.source].seconds for e in cycle) / sum(e.distance for e in cycle)
        for cycle in simple_cycles(graph)
    )
    return max(ratios, default=0.0)


def period_by_running(graph: TaskGraph, settle: int, steps: int) -> float:
    """Seconds per step between step `settle` and `settle + steps`, of the task that falls behind
    most.
    """
    order = sorted(graph.tasks, key=lambda task: int(task.name))
    ends: list[dict[str, float]] = []
    for step in range(settle + steps + 1):
        now: dict[str, float] = {}
        ends.append(now)
        for task in order:
            waits = [
                ends[step - e.distance][e.source]
                for e in graph.edges
                if e.target == task.name and e.distance <= step
            ]
            now[task.name] = max(waits, default=0.0) + task.seconds
    return max((ends[-1][t.name] - ends[settle][t.name] for t in order), default=math.nan) / steps
