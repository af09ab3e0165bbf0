"""A step's tasks over time, where each resource runs its own in the order of the text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import Operation

from rpeg.cost.estimate import Bounds, TaskSpan
from rpeg.cost.profiles.tasks import Priced
from rpeg.ir.ops.sampling import StaleOp
from rpeg.ir.rsched import uses


@dataclass(frozen=True)
class Steady:
    """The steady state."""

    period_s: float
    latency_s: float
    bounds: Bounds
    critical_cycle: tuple[str, ...]
    critical_distance: int
    spans: tuple[TaskSpan, ...]


def steady(tasks: Sequence[Priced]) -> Steady:
    """Of the tasks of a step.

    Without a window of versions one step follows another; with one of k steps, as many as k + 1
    are under way, and the busiest resource sets the pace at the latest.
    """
    spans = _spans(tasks)
    latency = max((span.end_s for span in spans), default=0.0)
    loads = load(tasks)
    busiest = max(loads.values(), default=0.0)
    window = _window(tasks)
    cycle = latency / (1 + window)
    waits = cycle >= busiest
    names = [task.name for task in tasks if task.profile.seconds]
    pool = max(loads, key=lambda name: loads[name]) if loads else ""
    on = [task.name for task in tasks if task.profile.seconds and task.pool == pool]
    return Steady(
        period_s=max(busiest, cycle),
        latency_s=latency,
        bounds=Bounds(busiest, cycle, 0.0),
        critical_cycle=tuple(names if waits else on),
        critical_distance=1 + window if waits else 1,
        spans=spans,
    )


def load(tasks: Sequence[Priced]) -> dict[str, float]:
    """Seconds of work of each resource in a step."""
    found: dict[str, float] = {}
    for task in tasks:
        if task.pool:
            found[task.pool] = found.get(task.pool, 0.0) + task.profile.seconds
    return found


def _spans(tasks: Sequence[Priced]) -> tuple[TaskSpan, ...]:
    """Each task as early as what it reads, and its resource, let it start."""
    ends: dict[Operation, float] = {}
    free: dict[str, float] = {}
    spans = []
    for task in tasks:
        ready = max((ends.get(maker, 0.0) for maker in _makers(task.op, ends)), default=0.0)
        start = max(ready, free.get(task.pool, 0.0)) if task.pool else ready
        end = start + task.profile.seconds
        ends[task.op] = end
        if task.pool:
            free[task.pool] = end
        spans.append(TaskSpan(task.name, task.name, task.pool or None, start, end))
    return tuple(spans)


def _makers(op: Operation, known: Mapping[Operation, float]) -> list[Operation]:
    owners = (value.owner for value in uses(op))
    return [owner for owner in owners if isinstance(owner, Operation) and owner in known]


def _window(tasks: Sequence[Priced]) -> int:
    """How many steps old the weights may be that samples are made with."""
    values = (v.owner for task in tasks for inner in task.op.walk() for v in inner.operands)
    windows = (owner for owner in values if isinstance(owner, StaleOp))
    return max((owner.int_of("high") for owner in windows), default=0)
