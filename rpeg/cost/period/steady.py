"""The steady state of a task graph: its period, what it waits for, and when each task runs."""

from __future__ import annotations

from dataclasses import dataclass

from rpeg.cost.estimate import Bounds, TaskSpan
from rpeg.cost.period import bounds, cycles
from rpeg.cost.period.graph import TaskGraph


@dataclass(frozen=True)
class Steady:
    """What an `Estimate` says of time; seconds."""

    period_s: float
    latency_s: float
    bounds: Bounds
    critical_cycle: tuple[str, ...]
    critical_distance: int
    spans: tuple[TaskSpan, ...]


def steady(graph: TaskGraph) -> Steady:
    """Runs a graph's tasks as early as its edges let them, step after step.

    Raises:
        Deadlock: tasks of one step wait for each other.
    """
    cycle = cycles.critical_cycle(graph)
    period_s = cycle.period if cycle is not None else 0.0
    begin = cycles.starts(graph, period_s)
    return Steady(
        period_s=period_s,
        latency_s=cycles.latency(graph),
        bounds=Bounds(
            load=bounds.resource_load(graph),
            cycle=bounds.free_cycle(graph),
            head_body_tail=bounds.head_body_tail(graph),
        ),
        critical_cycle=tuple(task.name for task in cycle.tasks) if cycle is not None else (),
        critical_distance=cycle.distance if cycle is not None else 0,
        spans=tuple(
            TaskSpan(t.name, t.stage, t.resource, begin[t.name], begin[t.name] + t.seconds)
            for t in graph.tasks
        ),
    )
