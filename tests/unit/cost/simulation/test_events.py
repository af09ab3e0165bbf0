"""Discrete events against the recursion they stand for, and laws they keep."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import pairwise
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpeg.cost.period.cycles import Deadlock, period
from rpeg.cost.period.graph import Edge, Task, TaskGraph
from rpeg.cost.period.variance import expected_period
from rpeg.cost.simulation.events import simulate
from rpeg.cost.simulation.network import Network, Transfer
from tests.unit.cost.simulation.plans import random_plan

SEEDS = st.integers(0, 10_000)


def disaggregated(k: int, buffer: int = 9) -> TaskGraph:
    """Generation and training on pools of their own."""
    tasks = (
        Task("y", 100, "rollout", "y"),
        Task("r", 5, "cores", "r"),
        Task("actor", 64, "trainer", "actor"),
        Task("publish", 3, None, "publish"),
    )
    edges = (
        *(Edge("y", "r"), Edge("r", "actor"), Edge("actor", "publish")),
        *(Edge(name, name, 1, "order") for name in ("y", "r", "actor")),
        Edge("publish", "y", 1 + k, "staleness"),
        Edge("actor", "y", buffer, "back-pressure"),
    )
    return TaskGraph(tasks, edges)


@pytest.mark.parametrize(("k", "buffer", "seconds"), [(0, 9, 172), (1, 9, 100), (4, 1, 169)])
def test_windows_and_buffers_set_the_pace(k: int, buffer: int, seconds: float) -> None:
    assert simulate(disaggregated(k, buffer), 20, warm=20).period == pytest.approx(seconds)


@pytest.mark.parametrize("seed", range(200))
def test_closed_form_and_events_agree_on_a_fixed_order(seed: int) -> None:
    """The steps that count are a multiple of 1 to 6, the steps of most critical cycles."""
    graph = random_plan(seed)
    assert simulate(graph, 120, warm=120).period == pytest.approx(period(graph), rel=1e-3)


TURN = 12
"""Steps at the ends of a run that a turn of a cycle need not fill."""


@pytest.mark.parametrize("seed", range(40))
def test_without_an_order_nothing_beats_the_closed_forms_bounds(seed: int) -> None:
    graph = random_plan(seed, ordered=False)
    load = max(sum(task.seconds for task in tasks) for tasks in graph.resources.values())
    least = max(period(graph), load)
    assert simulate(graph, 100).done[-1] >= least * (100 - TURN)


@pytest.mark.parametrize("seed", range(20))
def test_what_varies_is_never_faster_than_its_mean(seed: int) -> None:
    """Jensen's inequality: the closed form is given the means of what was drawn."""
    graph, draw = random_plan(seed), random.Random(seed)
    drawn = [{t.name: draw.expovariate(1 / t.seconds) for t in graph.tasks} for _ in range(200)]
    means = tuple(replace(t, seconds=fmean(d[t.name] for d in drawn)) for t in graph.tasks)
    run = simulate(graph, 200, drawn.__getitem__)
    assert run.done[-1] >= period(TaskGraph(means, graph.edges)) * (200 - 2 * TURN)


@settings(deadline=None, max_examples=50)
@given(SEEDS)
def test_starts_are_the_latest_of_what_is_waited_for(seed: int) -> None:
    graph = random_plan(seed)
    run = simulate(graph, 8)
    seconds = {task.name: task.seconds for task in graph.tasks}
    for task in graph.tasks:
        for step in range(8):
            expected = max(
                (
                    run.start[run.row(edge.source), step - edge.distance] + seconds[edge.source]
                    for edge in graph.edges
                    if edge.target == task.name and edge.distance <= step
                ),
                default=0.0,
            )
            assert run.start[run.row(task.name), step] == pytest.approx(expected)


@settings(deadline=None, max_examples=30)
@given(SEEDS, st.booleans())
def test_a_resource_does_one_task_at_a_time(seed: int, ordered: bool) -> None:
    graph = random_plan(seed, ordered)
    run = simulate(graph, 8)
    for resource in graph.resources:
        spans = sorted((s.start, s.end) for s in run.spans() if s.task.resource == resource)
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))


@settings(deadline=None, max_examples=30)
@given(SEEDS, st.floats(1.0, 3.0), st.integers(0, 2))
def test_longer_tasks_are_never_sooner(seed: int, factor: float, which: int) -> None:
    graph = random_plan(seed)
    slow = graph.tasks[which].name
    more = simulate(graph, 8, lambda step: {slow: graph.tasks[which].seconds * factor})
    assert (more.start >= simulate(graph, 8).start - 1e-9).all()


@settings(deadline=None, max_examples=30)
@given(SEEDS, st.floats(0.01, 100.0), st.booleans())
def test_units_scale(seed: int, factor: float, ordered: bool) -> None:
    graph = random_plan(seed, ordered)
    scaled = tuple(replace(task, seconds=task.seconds * factor) for task in graph.tasks)
    before, after = simulate(graph, 8), simulate(TaskGraph(scaled, graph.edges), 8)
    np.testing.assert_allclose(after.end, before.end * factor)


@settings(deadline=None, max_examples=30)
@given(SEEDS)
def test_names_change_nothing(seed: int) -> None:
    graph = random_plan(seed, ordered=False)
    tasks = tuple(replace(task, name=f"z{task.name}") for task in graph.tasks)
    edges = tuple(replace(e, source=f"z{e.source}", target=f"z{e.target}") for e in graph.edges)
    renamed = TaskGraph(tasks, edges)
    np.testing.assert_array_equal(simulate(renamed, 8).start, simulate(graph, 8).start)


def test_the_earlier_step_goes_first() -> None:
    """Without an order, `b` of step 0 is chosen before `a` of step 1."""
    tasks = (Task("a", 2, "pool", None), Task("b", 5, "pool", None))
    run = simulate(TaskGraph(tasks, (Edge("a", "b"),)), 2)
    assert run.start.tolist() == [[0, 7], [2, 9]]


def test_what_waits_for_itself_is_named() -> None:
    tasks = (Task("a", 1, None, None), Task("b", 1, None, None), Task("c", 1, None, None))
    edges = (Edge("a", "b"), Edge("b", "c"), Edge("c", "b"))
    with pytest.raises(Deadlock, match="b -> c -> b"):
        simulate(TaskGraph(tasks, edges), 3)


def test_transfers_share_a_link() -> None:
    """Both slow down to half while they meet; alone they take 4 and 2 seconds."""
    tasks = (Task("long", 4, "nic", None), Task("short", 2, "nic", None))
    network = Network(
        {"nic": 10.0}, {"long": Transfer(40.0, ("nic",)), "short": Transfer(20.0, ("nic",))}
    )
    run = simulate(TaskGraph(tasks, ()), 1, network=network)
    assert run.end[:, 0].tolist() == pytest.approx([6.0, 4.0])


@settings(deadline=None, max_examples=30)
@given(SEEDS, st.floats(1.0, 4.0))
def test_a_link_of_its_own_is_as_the_graph_says(seed: int, rate: float) -> None:
    """A transfer that nothing meets takes the task's seconds, whatever the capacity."""
    graph = random_plan(seed)
    sent = graph.tasks[0]
    network = Network({"l": rate * 100}, {sent.name: Transfer(rate * sent.seconds, ("l",))})
    shared = simulate(graph, 8, network=network)
    np.testing.assert_allclose(shared.start, simulate(graph, 8).start)


@pytest.mark.parametrize("seed", [1, 5])
def test_random_times_cost_what_the_variance_correction_says(seed: int) -> None:
    """Another implementation of the same recursion, with times of the same distribution."""
    graph, rng = random_plan(seed), np.random.default_rng(seed)
    spread = {task.stage or "": 0.5 for task in graph.tasks}
    deviation = math.sqrt(math.log1p(0.5**2))

    def draw(step: int) -> dict[str, float]:
        factors = rng.lognormal(-(deviation**2) / 2, deviation, len(graph.tasks))
        return {t.name: t.seconds * float(f) for t, f in zip(graph.tasks, factors, strict=True)}

    run = simulate(graph, 1500, draw, warm=50)
    assert run.period == pytest.approx(expected_period(graph, spread), rel=0.025)
