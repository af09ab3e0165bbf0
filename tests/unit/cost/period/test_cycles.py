"""The maximum cycle ratio: against all cycles, against a run, and its laws."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


SEEDS = st.integers(0, 10**9)


@given(SEEDS, st.floats(1e-6, 1e6))
def test_units_scale(seed: int, unit: float) -> None:
    graph = random_graph(seed)
    tasks = tuple(replace(task, seconds=unit * task.seconds) for task in graph.tasks)
    assert period(TaskGraph(tasks, graph.edges)) == pytest.approx(unit * period(graph), rel=1e-9)


@given(SEEDS)
def test_names_and_order_of_the_text_change_nothing(seed: int) -> None:
    graph = random_graph(seed)
    tasks = tuple(replace(task, name=f"t{task.name}") for task in reversed(graph.tasks))
    edges = tuple(
        replace(edge, source=f"t{edge.source}", target=f"t{edge.target}")
        for edge in reversed(graph.edges)
    )
    assert period(TaskGraph(tasks, edges)) == pytest.approx(period(graph), rel=1e-9)


@given(SEEDS, st.data())
def test_less_work_or_less_to_wait_for_is_never_slower(seed: int, data: st.DataObject) -> None:
    graph = random_graph(seed)
    now = period(graph) * (1 + 1e-9)
    task = data.draw(st.sampled_from(graph.tasks))
    quicker = (replace(t, seconds=t.seconds / 2) if t is task else t for t in graph.tasks)
    assert period(TaskGraph(tuple(quicker), graph.edges)) <= now
    kept = data.draw(st.integers(0, len(graph.edges)))
    assert period(TaskGraph(graph.tasks, graph.edges[:kept])) <= now
    later = tuple(replace(edge, distance=edge.distance + 1) for edge in graph.edges)
    assert period(TaskGraph(graph.tasks, later)) <= now
