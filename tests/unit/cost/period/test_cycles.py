"""The maximum cycle ratio: against all cycles, and against a run."""

import pytest

from rpeg.cost.period.cycles import (
    Deadlock,
    critical_cycle,
    latency,
    period,
    starts,
)
from rpeg.cost.period.graph import Edge, GraphError, Task, TaskGraph
from tests.unit.cost.period.graphs import (
    period_by_force,
    period_by_running,
    random_graph,
    ring,
)


def test_a_ring_takes_its_time_over_its_distance() -> None:
    assert period(ring(1, 2, 3)) == 6
    assert period(ring(1, 2, 3, distance=4)) == 1.5


def test_nothing_that_waits_takes_no_time() -> None:
    tasks = (Task("a", 1, None, None), Task("b", 2, None, None))
    assert critical_cycle(TaskGraph(tasks, (Edge("a", "b"),))) is None
    assert latency(TaskGraph(tasks, (Edge("a", "b"),))) == 3
    assert period(TaskGraph((), ())) == 0


def test_equal_to_all_cycles_of_1000_graphs() -> None:
    for seed in range(1000):
        graph = random_graph(seed)
        found, wanted = critical_cycle(graph), period_by_force(graph)
        assert (found.period if found else 0.0) == pytest.approx(wanted, rel=1e-9), seed
        if found is not None:
            assert all(edge in graph.edges for edge in found.edges)
            for edge, task, after in zip(
                found.edges, found.tasks, (*found.tasks[1:], found.tasks[0]), strict=True
            ):
                assert (edge.source, edge.target) == (task.name, after.name)


def test_a_run_settles_into_it() -> None:
    repeats = 840  # steps: a multiple of what a cycle of distance 1 to 8 repeats after
    for seed in range(20):
        graph = random_graph(seed, most=6)
        ran = period_by_running(graph, settle=400, steps=repeats)
        assert ran == pytest.approx(period(graph), rel=1e-6, abs=1e-12), seed


def test_schedule_keeps_every_edge() -> None:
    for seed in range(100):
        graph = random_graph(seed)
        every = period(graph)
        begin = starts(graph, every)
        for edge in graph.edges:
            ready = begin[edge.source] + graph.by_name[edge.source].seconds
            assert begin[edge.target] >= ready - every * edge.distance - 1e-9
        assert min(begin.values()) == 0
        if every > 0:
            with pytest.raises(ValueError, match="its period is longer"):
                starts(graph, 0.99 * every)


def test_a_cycle_within_a_step_is_a_deadlock() -> None:
    tasks = tuple(Task(name, 0.0, None, None) for name in "abc")
    edges = (Edge("a", "b"), Edge("b", "c"), Edge("c", "b"))
    with pytest.raises(Deadlock, match="zero-distance cycle: b -> c -> b"):
        period(TaskGraph(tasks, edges))


def test_names_are_checked() -> None:
    task = Task("a", 1.0, None, None)
    for wrong in (
        lambda: TaskGraph((task, task), ()),
        lambda: TaskGraph((task,), (Edge("a", "b"),)),
        lambda: TaskGraph((task,), (Edge("a", "a", -1),)),
        lambda: TaskGraph((Task("a", float("nan"), None, None),), ()),
    ):
        with pytest.raises(GraphError):
            wrong()


def test_a_long_step_is_no_trouble() -> None:
    graph = ring(*[1.0] * 3000)
    assert period(graph) == 3000
