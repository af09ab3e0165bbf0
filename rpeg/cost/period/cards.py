"""Cards that several links cross: all that a pool sends to others, or takes from them, passes its.

Transfers of one link follow one another, those of two don't wait for each other. But together they
can't move more than the cards of the pool that they share: that is one task more, the work of the
cards in a step, which begins when all that they move is there, and which nothing waits for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rpeg.cost.period.graph import Edge, Task, TaskGraph


def ends_of(task: Task, pools: Mapping[str, int]) -> tuple[str, str] | None:
    """The pools between which a task moves something; its resource is then called `A to B`."""
    sender, _, taker = (task.resource or "").partition(" to ")
    return (sender, taker) if sender in pools and taker in pools else None


def ways(sender: str, taker: str) -> tuple[str, str]:
    """What a transfer crosses: the cards of both pools, each in one direction."""
    return f"{sender} sends", f"{taker} receives"


def with_shared_cards(graph: TaskGraph, pools: Mapping[str, int]) -> TaskGraph:
    """The graph and a task for each pool's cards that more than one link crosses.

    Args:
        graph: transfers take as long as on all cards of the smaller of their pools.
        pools: processes of each pool, a card each.
    """
    work: dict[str, dict[Task, float]] = {}
    for task, way, seconds in _crossings(graph, pools):
        work.setdefault(way, {})[task] = seconds
    shared = {way: moved for way, moved in work.items() if len({t.resource for t in moved}) > 1}
    tasks = (Task(way, sum(moved.values()), way, way) for way, moved in shared.items())
    own = (Edge(way, way, 1, "order") for way in shared)
    made = {
        Edge(edge.source, way)
        for way, moved in shared.items()
        for edge in graph.edges
        if not edge.distance and edge.target in {task.name for task in moved}
    }
    edges = (*graph.edges, *own, *sorted(made, key=lambda edge: (edge.target, edge.source)))
    return TaskGraph((*graph.tasks, *tasks), edges) if shared else graph


def _crossings(graph: TaskGraph, pools: Mapping[str, int]) -> Iterator[tuple[Task, str, float]]:
    """(transfer, cards of a pool, seconds of all of them) of each transfer and end."""
    for task in graph.tasks:
        ends = ends_of(task, pools)
        if ends is not None and task.seconds:
            used = min(pools[end] for end in ends)
            for end, way in zip(ends, ways(*ends), strict=True):
                yield task, way, task.seconds * used / pools[end]
