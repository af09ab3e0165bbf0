"""Profiles against formulas by hand, and what makes them larger."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from rpeg.cost.estimate import TaskSpan
from rpeg.cost.generation import Engine
from rpeg.cost.hardware import Machine
from rpeg.cost.lengths import Lengths, Listed
from rpeg.cost.profiles.attribution import causes
from rpeg.cost.profiles.footprint import Footprint, Holding
from rpeg.cost.profiles.judging import judge
from rpeg.cost.profiles.layouts import Bound, Layout
from rpeg.cost.profiles.moving import publish_apart, publish_within
from rpeg.cost.profiles.passes import forward, update
from rpeg.cost.profiles.sampling import Rollouts
from rpeg.cost.profiles.shapes import ModelShape
from rpeg.cost.profiles.stage import Profile
from rpeg.cost.profiles.states import Row, States, forward_pass, states, training_pass
from rpeg.cost.profiles.timeline import moments, over_time, peak
from rpeg.cost.profiles.workload import Rows
from rpeg.cost.simulation.queues import served
from rpeg.cost.training import Software
from tests.unit.cost.figures import DENSE, H100

ACTOR = ModelShape("actor", DENSE, 1.0, 2.0)
ROWS = Rows(512.0, Lengths(200.0, 1024.0), Lengths(800.0, 4096.0))
BOUND = Bound(in_tokens=16384)
N = DENSE.parameters


# ---- lengths


def test_a_list_has_the_moments_of_its_numbers() -> None:
    held = Listed(np.array([1.0, 2.0, 3.0, 10.0]))
    assert held.average == 4.0
    assert held.square == (1 + 4 + 9 + 100) / 4
    assert held.longest(1) == pytest.approx(4.0)
    assert held.longest(1000) == pytest.approx(10.0)
    assert held.quantile(1.0) == 10.0


def test_quantiles_of_a_log_normal() -> None:
    drawn = np.random.default_rng(0).lognormal(0.0, 1.0, 200_000)
    mean, spread = math.exp(0.5), math.sqrt(math.e - 1.0)
    held = Lengths(mean, 1e9, spread)
    for share in (0.5, 0.95, 0.99):
        assert held.quantile(share) == pytest.approx(np.quantile(drawn, share), rel=0.03)
    assert replace(held, cap=2.0).quantile(0.99) == 2.0


# ---- layouts


def test_micro_batches_keep_tokens_and_squares() -> None:
    plans = Layout(tp=2, dp=4).plans(ROWS, BOUND, 1.0)
    assert float(plans.batch * plans.seq) == pytest.approx(ROWS.packed)
    assert float(plans.batch * plans.seq**2) == pytest.approx(ROWS.squares)
    assert float(plans.tokens) <= 16384
    assert float(plans.micro_batches) == math.ceil(ROWS.packed / 4 / 16384)


def test_a_row_beyond_the_bound_goes_alone() -> None:
    assert Bound(in_tokens=1000).at_most(ROWS, 4, 5000.0) == 5000.0
    assert Bound(in_rows=3).at_most(ROWS, 4, 5000.0) == 15000.0
    assert Bound().at_most(ROWS, 4, 10.0) == 128 * 10.0


# ---- causes


def test_causes_of_a_roofline() -> None:
    """One second of arithmetic, a quarter more for memory, half a second of links, 0.1 besides."""

    def formula(machine: Machine) -> float:
        compute = H100.flops["bf16"] / machine.flops["bf16"]
        memory = 1.25 * H100.hbm_bytes_per_s / machine.hbm_bytes_per_s
        sent = 0.5 * H100.link.bytes_per_s / machine.link.bytes_per_s
        return max(compute, memory) + sent + 0.1

    found = causes(formula, H100)
    assert found.compute == pytest.approx(1.0, rel=1e-5)
    assert found.memory == pytest.approx(0.25, rel=1e-5)
    assert found.communication == pytest.approx(0.5, rel=1e-5)
    assert found.overhead == pytest.approx(0.1, rel=1e-4)
    assert found.moved_bytes == pytest.approx(1.25 * H100.memory_rate, rel=1e-5)


# ---- passes


def test_an_update_of_more_epochs_takes_so_many_times_longer() -> None:
    def seconds(epochs: int) -> float:
        steps = update(
            ACTOR, Layout(dp=8), BOUND, ROWS, H100, Software(), epochs=epochs, minibatches=4
        )
        return steps.seconds

    assert seconds(3) == pytest.approx(3 * seconds(1))


def test_forward_flops_are_those_of_the_rows() -> None:
    found = forward(ACTOR, Layout(dp=8), BOUND, ROWS, H100, Software())
    assert found.flops == DENSE.forward_flops(ROWS.read, ROWS.squares)
    assert found.seconds > found.flops / (8 * H100.flops["bf16"])


@pytest.mark.parametrize("bound", [Bound(), BOUND, Bound(in_rows=2)], ids=str)
def test_no_pass_is_faster_than_its_flops(bound: Bound) -> None:
    long = Rows(512.0, Lengths(3000.0, 8192.0, 0.1), Lengths(800.0, 2048.0), 64.0)
    layout, peak = Layout(dp=8), 8 * H100.flops["bf16"]
    once = forward(ACTOR, layout, bound, long, H100, Software())
    trained = update(ACTOR, layout, bound, long, H100, Software(), epochs=1, minibatches=2)
    for found in (once, trained, *(e.profile(long, H100, Engine()) for e in engines())):
        assert 0.0 < found.flops < found.seconds * peak


def engines() -> tuple[Rollouts, Rollouts]:
    """The embedded engine, and one that refills."""
    embedded = Rollouts.of(ACTOR, Layout(dp=8), None, "bf16")
    assert embedded.embedded
    return embedded, replace(embedded, embedded=False, most=1024.0)


def test_sampling_reads_the_weights_in_every_step() -> None:
    slow, fast = (e.profile(ROWS, H100, Engine()) for e in engines())
    assert slow.seconds > fast.seconds
    longest = ROWS.response.longest(64)
    assert fast.seconds > longest * 2 * N / H100.hbm_bytes_per_s


def test_verifiers_share_the_answers() -> None:
    each = Lengths(0.1, 10.0, 0.5)
    few, many = judge(1000, each, 4), judge(1000, each, 40)
    assert few.seconds == pytest.approx(1000 * each.average / 4, rel=0.02)
    assert few.seconds > many.seconds > each.quantile(0.95)


@pytest.mark.parametrize("each", [Lengths(0.1, 10.0, 0.5), Lengths(0.02, 5.0, 2.0)])
@pytest.mark.parametrize(("answers", "workers"), [(32, 64), (96, 64), (512, 64), (100, 1)])
def test_the_last_answer_by_order_statistics(each: Lengths, answers: int, workers: int) -> None:
    """Against queues of drawn answers: some wait, none does, one worker has all."""
    draws = np.random.default_rng(0)
    ends = [served(each.drawn(answers, draws).tolist(), workers).max() for _ in range(300)]
    assert judge(answers, each, workers).seconds == pytest.approx(np.mean(ends), rel=0.12)


def test_equal_answers_come_in_rounds() -> None:
    assert judge(130, Lengths(0.5, 10.0, 0.0), 64).seconds == 3 * 0.5


def test_publishing_within_follows_hybridflow() -> None:
    """Table 2: a rank of t·p parts receives (tp - tg)/(tp·tg) of 2N bytes."""
    found = publish_within(ACTOR, Layout(tp=4), Layout(tp=2, dp=2), H100)
    expected = 2 * N * (4 - 2) / (4 * 2) / H100.link.reached
    assert found.breakdown["communication"] == pytest.approx(expected)
    same = publish_within(ACTOR, Layout(tp=4), Layout(tp=4), H100)
    assert same.breakdown["communication"] == 0.0


def test_publishing_apart_from_one_takes_longer_than_from_all() -> None:
    one, all_ = (
        publish_apart(ACTOR, Layout(dp=16), Layout(tp=4, dp=4), H100, mode)
        for mode in ("bcast", "relay")
    )
    assert one.breakdown["communication"] == pytest.approx(2 * N / H100.nic.reached)
    assert all_.breakdown["communication"] == pytest.approx(2 * N / 4 / H100.nic.reached)


def test_buckets_of_a_publish_have_a_start_and_a_size() -> None:
    """Small ones start often; of large ones the first and the last wait to be copied."""
    whole, bucket = 2 * N / 4, 2.0**20

    def published(size: float) -> Profile:
        return publish_apart(ACTOR, Layout(dp=16), Layout(tp=4, dp=4), H100, "relay", size)

    small, large = published(bucket), published(1024 * bucket)
    each = 2 * H100.kernel_s + H100.nic.latency_s
    assert small.breakdown["overhead"] == pytest.approx(math.ceil(whole / bucket) * each)
    assert small.breakdown["overhead"] > 900 * large.breakdown["overhead"]
    assert large.breakdown["memory"] == pytest.approx(4 * 1024 * bucket / H100.memory_rate)
    assert large.breakdown["memory"] > small.breakdown["memory"]
    within = [
        publish_within(ACTOR, Layout(tp=4), Layout(tp=2, dp=2), H100, size).seconds
        for size in (bucket, 1024 * bucket)
    ]
    assert within[0] > within[1]


# ---- memory


def test_states_follow_megatrons_table() -> None:
    """2 + 4 + 12/d bytes a weight with the distributed optimizer, 18 without it."""
    split = states(ACTOR, Layout(dp=8, zero=1))
    assert (split.weights, split.gradients) == pytest.approx((2 * N, 4 * N))
    assert split.optimizer == pytest.approx(12 * N / 8)
    whole = states(ACTOR, Layout(dp=8))
    assert whole.weights + whole.gradients + whole.optimizer == pytest.approx(18 * N)
    frozen = states(replace(ACTOR, trained=0.0), Layout(tp=2))
    assert frozen == States(pytest.approx(N), 0.0, 0.0)


def test_a_forward_pass_keeps_less_than_training() -> None:
    layout = Layout(dp=8)
    row = Row(tokens=5000.0, answered=0.8)
    trained = training_pass(ACTOR, layout, BOUND, ROWS, row)
    passed = forward_pass(ACTOR, layout, BOUND, ROWS, row)
    assert passed.activations * 10 < trained.activations
    assert passed.logits == pytest.approx(2 * 16384 * 0.8 * DENSE.vocabulary)
    assert trained.logits == pytest.approx(2 * passed.logits)


def _span(stage: str, start: float, end: float, resource: str = "all") -> TaskSpan:
    return TaskSpan(stage, stage, resource, start, end)


def test_memory_of_what_runs_at_once_is_summed() -> None:
    """A publish of the step before, over a link, meets this step's sampling."""
    held = Footprint(
        "all",
        (
            Holding("weights", 10.0),
            Holding("kv", 5.0, frozenset({"y"})),
            Holding("activations", 7.0, frozenset({"actor"})),
            Holding("buffers", 4.0, frozenset({"publish"})),
        ),
    )
    spans = [_span("y", 0, 4), _span("actor", 4, 8), _span("publish", 8, 9, "link")]
    alone = moments(spans, "all", 9.0)
    assert list(over_time(held, alone)) == [(0.0, 15.0), (4.0, 17.0), (8.0, 14.0)]
    overlapped = moments(spans, "all", 8.0)
    assert list(over_time(held, overlapped)) == [(0.0, 19.0), (1.0, 15.0), (4.0, 17.0)]
    assert peak(held, overlapped).running == "y"
    assert sum(held.terms(peak(held, overlapped).stages).values()) == 19.0


def test_a_span_over_the_end_of_a_period_begins_the_next() -> None:
    period = moments([_span("y", 6.0, 9.0)], "all", 8.0)
    assert [(m.start_s, m.running) for m in period] == [(0.0, "y"), (1.0, None), (6.0, "y")]
