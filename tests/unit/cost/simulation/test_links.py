"""Transfers between pools meet where one pool sends both."""

from __future__ import annotations

import pytest

from rpeg.cost.period.graph import Task, TaskGraph
from rpeg.cost.simulation.events import simulate
from rpeg.cost.simulation.links import network_of

POOLS = {"trainer": 2, "rollout": 4, "judge": 2}
GRAPH = TaskGraph(
    (
        Task("publish", 4.0, "trainer to rollout", None),
        Task("rows", 4.0, "trainer to judge", None),
        Task("back", 4.0, "judge to trainer", None),
        Task("r", 4.0, "cores", None),
    ),
    (),
)


def test_only_what_goes_between_pools_is_on_a_link() -> None:
    network = network_of(GRAPH, POOLS, 10.0)
    assert set(network.transfers) == {"publish", "rows", "back"}
    assert network.capacity["rollout receives"] == 40.0
    assert network.transfers["publish"].bytes == 4.0 * 2 * 10.0


def test_what_one_pool_sends_shares_its_cards() -> None:
    run = simulate(GRAPH, 1, network=network_of(GRAPH, POOLS, 10.0))
    assert run.end[:, 0].tolist() == pytest.approx([8.0, 8.0, 4.0, 4.0])
