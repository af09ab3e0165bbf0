"""What no order of tasks on their resources can beat: three lower bounds of the period.

The work of the busiest resource; the slowest cycle of the edges that are not there for an order;
and, for what every step waits for, head, body and tail: between two runs of a task, a resource does
all of the step's work that depends on the one and is needed by the other, no sooner than the
shortest way to it (head), no later than the shortest way from it (tail).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rpeg.cost.period import cycles
from rpeg.cost.period.graph import Edge, Task, TaskGraph

NEVER = float("-inf")


def resource_load(graph: TaskGraph) -> float:
    """Seconds of work of the busiest resource in one step."""
    held = graph.resources.values()
    return max((sum(task.seconds for task in tasks) for tasks in held), default=0.0)


def free_cycle(graph: TaskGraph) -> float:
    """Seconds per step of the slowest cycle, resources left out of account."""
    return cycles.period(graph.without("order"))


def head_body_tail(graph: TaskGraph) -> float:
    """The largest one-machine bound over resources, and over tasks that each step waits for.

    Of the tasks that lie on a cycle of distance 1 with such a task, each resource does all between
    two of its runs. Of any other task it does as much as one run takes, part of it perhaps as the
    end of one run and part as the beginning of the next: that work may be at any time in between.
    So the bound is never below the work of a resource, where there is such a task.
    """
    free = graph.without("order")
    anchors = dict.fromkeys(edge.source for edge in free.edges if edge.distance == 1)
    paths = _Around(free)
    found = (one_machine(jobs) for name in anchors for jobs in paths.jobs(name))
    return max(found, default=0.0)


@dataclass(frozen=True)
class Job:
    """Work of one resource: it can start after `head`, and `tail` follows it; seconds."""

    head: float
    body: float
    tail: float


def one_machine(jobs: Iterable[Job]) -> float:
    """The least time for all jobs and their tails on one machine: that of Jackson's preemptive
    schedule, which always runs what has the longest tail (Carlier, EJOR 11, 1982).
    """
    waiting = deque(sorted(jobs, key=lambda job: job.head))
    ready: list[tuple[float, float]] = []
    now = end = 0.0
    while waiting or ready:
        if not ready:
            now = max(now, waiting[0].head)
        while waiting and waiting[0].head <= now:
            job = waiting.popleft()
            heapq.heappush(ready, (-job.tail, job.body))
        tail, body = heapq.heappop(ready)
        run = min(body, waiting[0].head - now) if waiting else body
        now += run
        if run < body:
            heapq.heappush(ready, (tail, body - run))
        else:
            end = max(end, now - tail)
    return end


Layers = tuple[Mapping[str, float], Mapping[str, float]]
"""Longest paths to, or from, each task: within one step, and over one step's end."""


class _Around:
    """Longest paths of distance 0 and 1 from a task and back to it."""

    def __init__(self, graph: TaskGraph) -> None:
        self._graph = graph
        order = {task.name: index for index, task in enumerate(cycles.topological(graph))}
        near = [edge for edge in graph.edges if edge.distance <= 1]
        self._forward = sorted(near, key=lambda edge: order[edge.source])
        self._backward = sorted(near, key=lambda edge: -order[edge.target])

    def jobs(self, anchor: str) -> Iterator[Sequence[Job]]:
        """What each resource does between two runs of a task."""
        heads, tails = self._heads(anchor), self._tails(anchor)
        for tasks in self._graph.resources.values():
            yield [_job(task, heads, tails) for task in tasks]

    def _heads(self, anchor: str) -> Layers:
        """From the end of the anchor to each task's start."""
        tasks = self._graph.by_name
        arcs = [(e.source, e.target, tasks[e.source].seconds, e) for e in self._forward]
        return _longest(arcs, anchor, -tasks[anchor].seconds)

    def _tails(self, anchor: str) -> Layers:
        """From each task's end to the end of the anchor."""
        tasks = self._graph.by_name
        arcs = [(e.target, e.source, tasks[e.target].seconds, e) for e in self._backward]
        return _longest(arcs, anchor, 0.0)


Arc = tuple[str, str, float, Edge]
"""(from, to, seconds in between, its edge)."""


def _longest(arcs: Sequence[Arc], anchor: str, start: float) -> Layers:
    """Longest paths from a task along arcs that come in the order of a step."""
    here, beyond = {anchor: start}, dict[str, float]()
    for source, target, seconds, edge in arcs:
        if edge.distance == 0:
            here[target] = max(here.get(target, NEVER), here.get(source, NEVER) + seconds)
    for source, target, seconds, edge in arcs:
        if edge.distance == 1:
            beyond[target] = max(beyond.get(target, NEVER), here.get(source, NEVER) + seconds)
    for source, target, seconds, edge in arcs:
        if edge.distance == 0:
            beyond[target] = max(beyond.get(target, NEVER), beyond.get(source, NEVER) + seconds)
    return here, beyond


def _job(task: Task, heads: Layers, tails: Layers) -> Job:
    """A task that lies between two runs of the anchor, in the step of the second or the first; or
    one that no run of the anchor bounds on both sides, at any time.
    """
    for head, tail in ((heads[1], tails[0]), (heads[0], tails[1])):
        before, after = head.get(task.name, NEVER), tail.get(task.name, NEVER)
        if before > NEVER and after > NEVER:
            return Job(before, task.seconds, after)
    return Job(0.0, task.seconds, 0.0)
