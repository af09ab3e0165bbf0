"""Cards that several links cross: all that a pool sends to others, or takes from them, passes its.

Transfers of one link follow one another, those of two don't wait for each other. But together they
can't move more than the cards of the pool that they share: that is one task more, the work of the
cards in a step, which waits for nothing but itself.
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
    work: dict[str, dict[str, float]] = {}
    for link, way, seconds in _crossings(graph, pools):
        crossing = work.setdefault(way, {})
        crossing[link] = crossing.get(link, 0.0) + seconds
    shared = {way: sum(links.values()) for way, links in work.items() if len(links) > 1}
    tasks = (Task(way, seconds, way, way) for way, seconds in shared.items())
    edges = (Edge(way, way, 1, "order") for way in shared)
    return TaskGraph((*graph.tasks, *tasks), (*graph.edges, *edges)) if shared else graph


def _crossings(graph: TaskGraph, pools: Mapping[str, int]) -> Iterator[tuple[str, str, float]]:
    """(link, cards of a pool, seconds of all of them) of each transfer and end."""
    for task in graph.tasks:
        ends = ends_of(task, pools)
        if ends is not None and task.seconds:
            used = min(pools[end] for end in ends)
            for end, way in zip(ends, ways(*ends), strict=True):
                yield task.resource or "", way, task.seconds * used / pools[end]
