"""Cards that two links cross bound what both move in a step."""

from __future__ import annotations

import pytest

from rpeg.cost.period.cards import with_shared_cards
from rpeg.cost.period.cycles import critical_cycle, period
from rpeg.cost.period.graph import Edge, Task, TaskGraph
from rpeg.cost.simulation.events import simulate
from rpeg.cost.simulation.links import network_of

POOLS = {"trainer": 4, "rollout": 2, "judge": 4}


def graph(*links: str) -> TaskGraph:
    """A transfer of 4 s over each; all of a step follow those of the step before."""
    tasks = [Task(link, 4.0, link, link) for link in links]
    edges = [Edge(link, other, 1, "order") for link in links for other in links]
    return TaskGraph(tuple(tasks), tuple(edges))


def test_what_one_pool_sends_to_two_takes_its_cards_time() -> None:
    """All cards of the trainer for the judge, half of them for the rollouts: 4 s and 2 s."""
    whole = with_shared_cards(graph("trainer to rollout", "trainer to judge"), POOLS)
    assert period(whole) == pytest.approx(6.0)
    cycle = critical_cycle(whole)
    assert cycle is not None and [task.name for task in cycle.tasks] == ["trainer sends"]


def test_events_take_no_less() -> None:
    alone = graph("trainer to rollout", "trainer to judge")
    whole, network = with_shared_cards(alone, POOLS), network_of(alone, POOLS, 10.0)
    assert period(alone) == 4.0
    assert simulate(whole, 40, network=network, warm=10).period == pytest.approx(6.0, rel=0.01)


def test_no_cards_run_ahead_of_what_they_move() -> None:
    """What is made in 10 s takes the cards 6: they begin no step before it is there."""
    links = ("trainer to rollout", "trainer to judge")
    maker = Task("maker", 10.0, "trainer", "maker")
    made = (Edge("maker", "maker", 1, "order"), *(Edge("maker", link) for link in links))
    bare = graph(*links)
    whole = with_shared_cards(TaskGraph((maker, *bare.tasks), (*bare.edges, *made)), POOLS)
    run = simulate(whole, 40, warm=10)
    assert run.period == pytest.approx(10.0)
    cards, first = ([t.name for t in whole.tasks].index(n) for n in ("trainer sends", "maker"))
    assert run.start[cards] == pytest.approx(run.end[first])


@pytest.mark.parametrize(
    "links", [("trainer to rollout", "rollout to trainer"), ("trainer to rollout",), ("cores",)]
)
def test_who_shares_nothing_has_no_more_tasks(links: tuple[str, ...]) -> None:
    assert with_shared_cards(graph(*links), POOLS).tasks == graph(*links).tasks
