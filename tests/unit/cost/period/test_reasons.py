"""What explains a period: hops of the critical cycle, and changes that would shorten it."""

import pytest

from rpeg.cost.period.cycles import critical_cycle, period
from rpeg.cost.period.graph import Edge, Task, TaskGraph
from rpeg.cost.period.reasons import Hop, hops, what_if


def chunked(lag: int = 0, room: int = 9) -> TaskGraph:
    """Two chunks of samples, scored as they come; weights come back after `lag` steps more."""
    tasks = (
        Task("q", 0, "rollout", "q"),
        Task("y 1/2", 5, "rollout", "y"),
        Task("y 2/2", 5, "rollout", "y"),
        Task("r 1/2", 2, "cores", "r"),
        Task("r 2/2", 2, "cores", "r"),
        Task("adv", 0, "trainer", "adv"),
        Task("actor", 6, "trainer", "actor"),
        Task("publish", 1, "trainer", "publish"),
    )
    edges = (
        *(Edge("q", "y 1/2"), Edge("y 1/2", "y 2/2", 0, "order"), Edge("y 2/2", "q", 1, "order")),
        *(Edge("y 1/2", "r 1/2"), Edge("y 2/2", "r 2/2"), Edge("r 1/2", "r 2/2", 0, "order")),
        *(Edge("r 2/2", "adv"), Edge("adv", "actor"), Edge("actor", "publish")),
        *(Edge("publish", "q", 1 + lag, "staleness"), Edge("publish", "adv", 1, "order")),
        Edge("actor", "q", room, "back-pressure"),
    )
    return TaskGraph(tasks, edges)


def test_hops_are_stages_that_take_time() -> None:
    cycle = critical_cycle(chunked())
    assert cycle is not None
    assert hops(cycle) == (
        Hop("y", 10, "rollout", "staleness", 1, ("q",)),
        Hop("r 2/2", 2, "cores", "data", 0),
        Hop("actor", 6, "trainer", "data", 0, ("adv",)),
        Hop("publish", 1, "trainer", "data", 0),
    )


def test_nothing_of_a_cycle_is_lost() -> None:
    for graph in (chunked(), chunked(1), chunked(5), chunked(5, room=1)):
        cycle = critical_cycle(graph)
        assert cycle is not None
        found = hops(cycle)
        assert sum(hop.seconds for hop in found) == cycle.seconds
        assert sum(hop.steps for hop in found) == cycle.distance


def test_older_weights_help_where_weights_are_waited_for() -> None:
    found = {change.what: change.period_s for change in what_if(chunked())}
    assert found["weights may be one step older"] == period(chunked(1)) == 10
    assert found["`y` takes a tenth less"] == pytest.approx(18)
    assert found["`actor` takes a tenth less"] == pytest.approx(18.4)
    assert list(found.values()) == sorted(found.values())
    assert "room for one more batch between pools" not in found


def test_a_busy_pool_needs_less_work() -> None:
    assert [change.what for change in what_if(chunked(1))] == ["`y` takes a tenth less"]


def test_room_helps_where_a_channel_is_full() -> None:
    tight = chunked(5, room=1)
    assert period(tight) == 18
    found = {change.what: change.period_s for change in what_if(tight)}
    assert found["room for one more batch between pools"] == 10
