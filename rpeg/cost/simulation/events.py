"""Discrete events: when each task of each step starts and ends.

A task starts when all that its edges wait for has ended and its resource is free. Where several
wait for one resource, the earlier step goes first, then the task that the graph names first; no
task is interrupted. A transfer of the network shares its links instead, and takes longer for it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping

import numpy as np

from rpeg.cost.arrays import Array
from rpeg.cost.period.cycles import topological
from rpeg.cost.period.graph import TaskGraph
from rpeg.cost.simulation.flows import Flows, Key
from rpeg.cost.simulation.network import Network
from rpeg.cost.simulation.run import Run

Draw = Callable[[int], Mapping[str, float]]
"""Seconds of tasks in one step; those that it leaves out take what the graph says."""


def simulate(
    graph: TaskGraph,
    steps: int,
    draw: Draw | None = None,
    network: Network | None = None,
    *,
    warm: int = 0,
) -> Run:
    """Runs so many steps, from an idle machine on, after `warm` that don't count.

    Raises:
        Deadlock: tasks of one step wait for each other in a circle.
    """
    topological(graph)
    whole = _Simulation(graph, warm + steps, draw or _as_the_graph_says, network or Network())
    start, end = whole.run()
    return Run(graph, start, end, warm)


def _as_the_graph_says(step: int) -> Mapping[str, float]:
    return {}


class _Simulation:
    """The state of one run. Tasks go by their position in the graph."""

    def __init__(self, graph: TaskGraph, steps: int, draw: Draw, network: Network) -> None:
        self.graph, self.steps, self.network = graph, steps, network
        self.seconds = [self._durations(draw(step)) for step in range(steps)]
        self.start = [[math.nan] * steps for _ in graph.tasks]
        self.end = [[math.nan] * steps for _ in graph.tasks]
        self.waits = [[0] * steps for _ in graph.tasks]
        self.after: list[list[tuple[int, int]]] = [[] for _ in graph.tasks]
        self._connect()
        self.queues: dict[str, list[Key]] = {}
        self.busy: set[str] = set()
        self.ends: list[tuple[float, Key]] = []
        self.flows = Flows(network.capacity)

    def _durations(self, drawn: Mapping[str, float]) -> list[float]:
        return [drawn.get(task.name, task.seconds) for task in self.graph.tasks]

    def _connect(self) -> None:
        """Counts what each task waits for; what lies before the first step is there already."""
        position = {task.name: number for number, task in enumerate(self.graph.tasks)}
        for edge in self.graph.edges:
            source, target = position[edge.source], position[edge.target]
            self.after[source].append((target, edge.distance))
            for step in range(edge.distance, self.steps):
                self.waits[target][step] += 1

    def run(self) -> tuple[Array, Array]:
        """Goes from event to event until nothing is left to start; starts and ends."""
        for position, waits in enumerate(self.waits):
            for step in (step for step, count in enumerate(waits) if count == 0):
                self._queue((step, position), 0.0)
        self._dispatch(0.0)
        while self.ends or self.flows:
            now = min(self.ends[0][0] if self.ends else math.inf, self.flows.next_end())
            for key in self._ended(now):
                self._finish(key, now)
            self._dispatch(now)
        return np.array(self.start), np.array(self.end)

    def _ended(self, now: float) -> list[Key]:
        """All that end now, so that what waits for a resource is known before one is chosen."""
        done = self.flows.finish(now)
        while self.ends and self.ends[0][0] <= now:
            done.append(heapq.heappop(self.ends)[1])
        return done

    def _finish(self, key: Key, now: float) -> None:
        step, position = key
        self.end[position][step] = now
        resource = self._exclusive(position)
        if resource is not None:
            self.busy.discard(resource)
        for target, distance in self.after[position]:
            if step + distance < self.steps:
                self.waits[target][step + distance] -= 1
                if self.waits[target][step + distance] == 0:
                    self._queue((step + distance, target), now)

    def _queue(self, key: Key, now: float) -> None:
        """A task that waits for its resource only; it starts at once if it needs none."""
        resource = self._exclusive(key[1])
        if resource is None:
            self._begin(key, now)
        else:
            heapq.heappush(self.queues.setdefault(resource, []), key)

    def _dispatch(self, now: float) -> None:
        for resource, queue in self.queues.items():
            if queue and resource not in self.busy:
                self.busy.add(resource)
                self._begin(heapq.heappop(queue), now)

    def _begin(self, key: Key, now: float) -> None:
        step, position = key
        seconds = self.seconds[step][position]
        self.start[position][step] = now
        transfer = self.network.transfers.get(self.graph.tasks[position].name)
        if transfer is None or seconds <= 0.0:
            heapq.heappush(self.ends, (now + seconds, key))
        else:
            self.flows.add(key, transfer, seconds, now)

    def _exclusive(self, position: int) -> str | None:
        """The resource that a task has to itself."""
        task = self.graph.tasks[position]
        return None if task.name in self.network.transfers else task.resource
