"""What varies: factors of stages are 1 on average where the closed form is exact."""

from __future__ import annotations

from statistics import fmean

import numpy as np
import pytest

from rpeg.cost.arrays import Array
from rpeg.cost.lengths import Distribution, Lengths, Listed
from rpeg.cost.period.graph import Edge, Task, TaskGraph
from rpeg.cost.simulation.batching import Decoding
from rpeg.cost.simulation.draws import (
    Answering,
    Batch,
    Chunks,
    Continuous,
    Draws,
    Passing,
    Sampling,
    Stage,
)

LENGTH = Lengths(200.0, 1000.0, 0.5)
GRAPH = TaskGraph(
    (Task("y", 10, "g", "y"), Task("actor", 20, "t", "actor"), Task("sync", 1, None, "sync")),
    (Edge("y", "actor"), Edge("actor", "sync")),
)


def sampling(slots: int = 64) -> Sampling:
    decoding = Decoding([1.0] * slots, 0.0, 0.0, 100.0)
    return Sampling("y", 64, LENGTH, Continuous(2, decoding), LENGTH.longest(64))


def draws(seed: int, **more: Stage) -> Draws:
    stages = {"y": sampling(), **more, "actor": Passing("y", 100.0, LENGTH.average)}
    return Draws(GRAPH, stages, {}, seed)


@pytest.mark.parametrize("each", [LENGTH, Listed(np.array([1.0, 2.0, 9.0]))])
def test_draws_have_the_distributions_moments(each: Distribution) -> None:
    drawn = each.drawn(20_000, np.random.default_rng(1))
    assert drawn.mean() == pytest.approx(each.average, rel=0.02)
    assert (drawn**2).mean() == pytest.approx(each.square, rel=0.03)
    assert drawn.max() <= each.quantile(1.0)


def test_tasks_take_what_is_expected_on_average() -> None:
    """The longest of 64 responses on as many slots ends the batch, one second per token."""
    steps = [draws(3)(step) for step in range(300)]
    assert fmean(step["y"] for step in steps) == pytest.approx(10, rel=0.03)
    assert fmean(step["actor"] for step in steps) == pytest.approx(20, rel=0.01)
    assert "sync" not in steps[0]


def test_draws_repeat_by_seed_step_and_stage() -> None:
    scored = Answering("y", Lengths(0.1, 5.0), 4, 1.0)
    assert draws(3)(7) == draws(3)(7)
    assert draws(3)(7) != draws(3)(8)
    assert draws(3)(7) != draws(4)(7)
    assert draws(3)(7) == draws(3, r=scored)(7)


def test_chunks_wait_for_their_longest() -> None:
    """Two replicas with three responses each, two at a time, a second per token."""

    found = Chunks(2, 2, lambda longest: longest).ends(np.array([5.0, 9.0, 2.0, 1.0, 1.0, 7.0]))
    assert found.tolist() == [9, 9, 11, 1, 1, 8]


def test_answers_of_a_part_wait_for_that_part_only() -> None:
    """Four answers of 2 s: one worker takes 8 s, two of them 4 s; in two parts half of each."""
    batch = {"y": Batch(np.ones(4), np.ones(4))}
    each, rng = Lengths(2.0, 5.0, 0.0), np.random.default_rng(0)
    assert Answering("y", each, 1, 8.0).factors(1, batch, rng) == pytest.approx([1.0])
    assert Answering("y", each, 2, 8.0).factors(1, batch, rng) == pytest.approx([0.5])
    assert Answering("y", each, 1, 8.0).factors(2, batch, rng) == pytest.approx([1.0, 1.0])
    assert Answering("y", each, 4, 8.0).factors(2, batch, rng) == pytest.approx([0.5, 0.5])


def test_what_comes_every_few_steps_comes_whole() -> None:
    rare = Draws(GRAPH, {"y": sampling()}, {"sync": 3, "y": 2}, 0)
    assert [rare(step)["sync"] for step in range(6)] == [0, 0, 3, 0, 0, 3]
    assert rare(0)["y"] == 0.0
    assert rare(1)["y"] == 2 * Draws(GRAPH, {"y": sampling()}, {}, 0)(1)["y"]


def test_parts_end_with_the_responses_they_hold() -> None:
    """Four responses that end after 1, 2, 3 and 9 seconds, in two parts of 5 s expected."""

    class Given:
        def ends(self, lengths: Array) -> Array:
            return np.array([3.0, 9.0, 1.0, 2.0])

    stage = Sampling("y", 4, LENGTH, Given(), 10.0)
    assert stage.factors(2, {}, np.random.default_rng(0)) == pytest.approx([2 / 5, 7 / 5])
