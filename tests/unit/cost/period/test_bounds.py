"""Lower bounds: on pipelines whose period was worked out by hand, and below it on random graphs."""

import random
from itertools import pairwise

import pytest

from rpeg.cost.period.bounds import Job, free_cycle, head_body_tail, one_machine, resource_load
from rpeg.cost.period.cycles import period
from rpeg.cost.period.graph import Edge, Task, TaskGraph
from rpeg.cost.period.variance import expected_period
from tests.unit.cost.period.graphs import random_graph

SECONDS = {"gen": 100, "score": 5, "ref": 12, "old": 12, "update": 40, "publish": 3}
"""Of a step of RL; the verifier has cores of its own."""


def pipeline(lag: int, buffer: int | None = None, *, pools: int = 2) -> TaskGraph:
    """Samples go to the pool that trains, whose weights come back `lag` steps later than at once;
    `buffer` batches wait at most.
    """
    home = "trainer" if pools == 2 else "rollout"
    where = {"gen": "rollout", "score": None, "publish": "link"}
    tasks = tuple(Task(n, s, where.get(n, home), n) for n, s in SECONDS.items())
    data = [Edge("gen", reader) for reader in ("score", "ref", "old")]
    data += [Edge(reader, "update") for reader in ("score", "ref", "old")]
    data += [Edge("update", "publish"), Edge("publish", "gen", 1 + lag, "staleness")]
    data += [Edge("update", "update", 1, "state")]
    order = ["ref", "old", "update"] if pools == 2 else ["gen", "ref", "old", "update"]
    data += [Edge(a, b, 0, "order") for a, b in pairwise(order)]
    data += [Edge(order[-1], order[0], 1, "order"), Edge("gen", "gen", 1, "order")]
    if buffer is not None:
        data.append(Edge("old", "gen", buffer, "back-pressure"))
    return TaskGraph(tasks, tuple(data))


@pytest.mark.parametrize(
    ("graph", "seconds"),
    [
        (pipeline(0, pools=1), 167),
        (pipeline(0), 167),
        (pipeline(1), 100),
        (pipeline(4), 100),
        (pipeline(4, buffer=1), 124),
    ],
)
def test_period(graph: TaskGraph, seconds: float) -> None:
    assert period(graph) == seconds


def test_bounds_of_a_synchronous_step() -> None:
    graph = pipeline(0)
    assert resource_load(graph) == 100
    assert free_cycle(graph) == 100 + 12 + 40 + 3
    assert head_body_tail(graph) == 100 + 12 + 12 + 40 + 3  # head 100 + 3, body 64


def test_a_resource_does_all_its_work_between_two_runs_of_what_steps_wait_for() -> None:
    """A critic is on no cycle of one step with the weights, but on the GPUs in each."""
    graph = pipeline(0, pools=1)
    critic = Task("critic", 30, "rollout", "critic")
    edges = [edge for edge in graph.edges if edge.why != "order"]
    edges += [Edge("old", "critic"), Edge("critic", "old", 1, "state")]
    graph = TaskGraph((*graph.tasks, critic), tuple(edges))
    assert resource_load(graph) == 100 + 12 + 12 + 30 + 40
    assert head_body_tail(graph) == 100 + 12 + 12 + 30 + 40  # to publish may be beside the critic


def test_work_with_what_comes_before_and_after_is_no_less_than_the_work() -> None:
    more = 0
    for seed in range(300):
        graph = _ordered(random_graph(seed), seed)
        if any(edge.distance == 1 and edge.why != "order" for edge in graph.edges):
            work, bound = resource_load(graph), head_body_tail(graph)
            assert bound >= work - 1e-9, seed
            more += bound > work + 1e-9
    assert more


def test_the_schedule_of_one_machine() -> None:
    assert one_machine([]) == 0
    assert one_machine([Job(2, 3, 4)]) == 9
    jobs = [Job(10, 5, 7), Job(13, 6, 26), Job(11, 7, 24), Job(20, 4, 21), Job(30, 3, 8)]
    jobs += [Job(0, 6, 17), Job(30, 2, 0)]
    assert one_machine(jobs) == 49  # Carlier (1982), example 1; without preemption 50


def test_no_bound_is_above_the_period() -> None:
    for seed in range(300):
        graph = _ordered(random_graph(seed), seed)
        for bound in (resource_load, free_cycle, head_body_tail):
            assert bound(graph) <= period(graph) + 1e-9, (seed, bound.__name__)


def _ordered(graph: TaskGraph, seed: int) -> TaskGraph:
    """The graph on two resources, which run their tasks in the order of their numbers."""
    draw = random.Random(seed)
    tasks = tuple(Task(t.name, t.seconds, draw.choice("AB"), None) for t in graph.tasks)
    order = []
    for held in TaskGraph(tasks, ()).resources.values():
        names = [task.name for task in held]
        order += [Edge(a, b, 0, "order") for a, b in pairwise(names)]
        order.append(Edge(names[-1], names[0], 1, "order"))
    return TaskGraph(tasks, (*graph.edges, *order))


def test_random_times_take_longer() -> None:
    graph = pipeline(1)
    assert expected_period(graph, {}) == pytest.approx(100)
    alone = expected_period(graph, {"update": 0.3})
    assert alone == pytest.approx(100, rel=0.01)  # it hides behind generation
    both = expected_period(pipeline(0), {"gen": 0.3, "update": 0.3})
    assert both == pytest.approx(167, rel=0.02)  # one cycle: the mean of a sum
    tight = TaskGraph(
        (Task("a", 10, None, "a"), Task("b", 10, None, "b")),
        (Edge("a", "b"), Edge("b", "a", 1), Edge("a", "a", 1), Edge("b", "b", 1)),
    )
    assert expected_period(tight, {"a": 0.5}) == pytest.approx(20, rel=0.02)
    raced = TaskGraph(
        (Task("a", 10, None, "a"), Task("b", 10, None, "b"), Task("c", 0, None, None)),
        (Edge("a", "c"), Edge("b", "c"), Edge("c", "a", 1), Edge("c", "b", 1)),
    )
    assert period(raced) == 10
    assert expected_period(raced, {"a": 0.5, "b": 0.5}) > 12  # the later of two


def test_a_figure_repeats() -> None:
    graph = pipeline(0)
    assert expected_period(graph, {"gen": 0.3}) == expected_period(graph, {"gen": 0.3})
