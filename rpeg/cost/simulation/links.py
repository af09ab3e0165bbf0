"""The links between a plan's pools: each sends and receives at the rate of its processes' cards.

What one pool sends to two others, weights and rows, shares what it sends with. A transfer has the
size that its seconds would take on as many cards as the smaller of its pools has.
"""

from __future__ import annotations

from collections.abc import Mapping

from rpeg.cost.period.cards import ends_of, ways
from rpeg.cost.period.graph import Task, TaskGraph
from rpeg.cost.simulation.network import Network, Transfer


def network_of(graph: TaskGraph, pools: Mapping[str, int], card: float) -> Network:
    """Of a graph whose links are called `A to B`.

    Args:
        graph: tasks and what they have to themselves.
        pools: processes of each pool.
        card: bytes per second of one process.
    """
    capacity = {link: count * card for pool, count in pools.items() for link in ways(pool, pool)}
    found = {task.name: _transfer(task, pools, card) for task in graph.tasks}
    return Network(capacity, {name: each for name, each in found.items() if each is not None})


def _transfer(task: Task, pools: Mapping[str, int], card: float) -> Transfer | None:
    ends = ends_of(task, pools)
    if ends is None:
        return None
    return Transfer(task.seconds * min(pools[end] for end in ends) * card, ways(*ends))
