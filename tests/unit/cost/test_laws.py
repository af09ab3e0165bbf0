"""Laws that a cost has to keep, whatever its constants."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpeg.cost.architecture_files import load_architecture, shipped
from rpeg.cost.collectives import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    REDUCE_SCATTER,
    Group,
    bus_factor,
    collective,
    stream,
)
from rpeg.cost.generation import Engine, Requests, Serving, generation_time, serving_memory
from rpeg.cost.hardware import known_machines, load_machine
from rpeg.cost.kernels import matmul, streamed
from rpeg.cost.layers import (
    ALL_TO_ALLS,
    CAPTURED,
    DEEP_EP,
    EAGER,
    FUSED,
    HYBRID_EP,
    LOOPED,
)
from rpeg.cost.memory import Keeping, training_memory
from rpeg.cost.plans import Plans
from rpeg.cost.training import Software, step_time
from tests.unit.cost.figures import DENSE, H100, MIXTURE, faster, plans

SHAPES = st.sampled_from([DENSE, MIXTURE])
FACTORS = st.floats(1.0, 8.0)
LAYOUTS = st.fixed_dictionaries(
    {
        "tp": st.sampled_from([1, 2, 4, 8]),
        "pp": st.sampled_from([1, 2, 4]),
        "cp": st.sampled_from([1, 2]),
        "ep": st.sampled_from([1, 2, 4]),
        "micro": st.sampled_from([1, 2]),
        "recompute": st.sampled_from([0, 1, 2]),
        "zero": st.sampled_from([0, 1, 3]),
    }
)


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(sorted({shape.name for shape in shipped().values()})),
    st.sampled_from(known_machines()),
    LAYOUTS,
    FACTORS,
    st.sampled_from(["flops", "memory", "link", "nic"]),
)
def test_faster_hardware_is_never_slower(
    model: str, name: str, layout: dict[str, float], factor: float, rate: str
) -> None:
    shape, machine = load_architecture(model), load_machine(name)
    before = step_time(shape, machine, plans(**layout)).total
    after = step_time(shape, faster(machine, **{rate: factor}), plans(**layout)).total
    assert after <= before * (1 + 1e-12)


@settings(deadline=None, max_examples=30)
@given(FACTORS, st.sampled_from([1, 2, 4, 8]), st.floats(1.0, 4000.0))
def test_more_memory_is_never_slower(factor: float, tp: float, number: float) -> None:
    bigger = replace(H100, memory_bytes=H100.memory_bytes * factor)
    jobs = Requests.of(number, 512, 512)
    small, large = (
        generation_time(Serving.of(DENSE, machine, tp), jobs, Engine())
        for machine in (H100, bigger)
    )
    assert large <= small * (1 + 1e-12)


@given(st.floats(0.1, 10.0), st.floats(1.0, 1e5), st.floats(1.0, 1e5), st.floats(1.0, 1e5))
def test_units_scale(unit: float, m: float, k: float, n: float) -> None:
    """Time in another unit: every rate and every latency by the same factor."""
    scaled = replace(faster(H100, *(4 * [1 / unit])), kernel_s=H100.kernel_s * unit)
    for kernel in (lambda on: matmul(on, "fp8", m, k, n), lambda on: streamed(on, m * k, n)):
        assert kernel(scaled) == pytest.approx(kernel(H100) * unit, rel=1e-9)


@settings(deadline=None, max_examples=30)
@given(SHAPES, st.permutations(range(6)))
def test_order_changes_nothing(shape: object, order: list[int]) -> None:
    """Plans are independent: their order, or what stands beside them, changes no cost."""
    tp = np.array([1, 2, 4, 8, 1, 2.0])
    pp = np.array([1, 1, 2, 2, 4, 4.0])
    many = Plans.of(batch=64, seq=4096, tp=tp, pp=pp, dp=32 / tp / pp)
    moved = Plans.of(batch=64, seq=4096, tp=tp[order], pp=pp[order], dp=(32 / tp / pp)[order])
    costs = [step_time(shape, H100, one).total for one in (many, moved)]  # type: ignore[arg-type]
    np.testing.assert_array_equal(costs[0][order], costs[1])


@given(st.integers(2, 512), st.floats(1.0, 1e9))
def test_bytes_sent_are_bytes_received(ranks: int, size: float) -> None:
    """An all-reduce moves what its reduce-scatter and its all-gather move."""
    n = np.asarray(float(ranks))
    halves = bus_factor(REDUCE_SCATTER, n) + bus_factor(ALL_GATHER, n)
    assert size * bus_factor(ALL_REDUCE, n) == pytest.approx(size * halves)


@given(st.sampled_from([ALL_REDUCE, ALL_GATHER, ALL_TO_ALL]), st.floats(1.0, 1e9), FACTORS)
def test_larger_messages_take_longer(operation: str, size: float, factor: float) -> None:
    group = Group.of(H100, 16)
    times = [collective(H100, operation, size * by, group) for by in (1.0, factor)]
    assert times[0] <= times[1]


def test_parts_add_up() -> None:
    layout = plans(tp=2, pp=2, recompute=2)
    time = step_time(DENSE, H100, layout)
    parts = [getattr(time, name) for name in time.__dataclass_fields__ if name != "total"]
    assert float(sum(parts)) == pytest.approx(float(time.total))
    memory = training_memory(DENSE, layout)
    parts = [getattr(memory, name) for name in memory.__dataclass_fields__ if name != "total"]
    assert float(sum(parts)) == pytest.approx(float(memory.total))


@given(st.floats(1.0, 1e5), st.sampled_from([1, 2, 4, 8]))
def test_cache_fits_what_weights_leave(number: float, tp: float) -> None:
    held = serving_memory(Serving.of(DENSE, H100, tp), Requests.of(number, 512, 512), Engine())
    assert float(held.weights + held.cache + held.engine) == pytest.approx(float(held.total))
    assert held.total <= Engine().utilization * H100.memory_bytes * (1 + 1e-9)


def test_states_follow_megatrons_table() -> None:
    """18 bytes a weight without a distributed optimizer; 6 + 12/d with one."""
    for zero, each in ((0, 18.0), (1, 6.0 + 12.0 / 32.0)):
        held = training_memory(DENSE, plans(zero=zero))
        states = float(held.states - held.workspace)
        assert states == pytest.approx(each * DENSE.parameters, rel=1e-9)


def test_imbalance_costs_time_and_memory() -> None:
    even, uneven = (plans(ep=4, micro=4, imbalance=factor) for factor in (1.0, 1.5))
    times = [step_time(MIXTURE, H100, layout).total for layout in (even, uneven)]
    held = [training_memory(MIXTURE, layout).total for layout in (even, uneven)]
    assert times[0] < times[1]
    assert held[0] < held[1]


@given(LAYOUTS)
@settings(deadline=None, max_examples=20)
def test_who_sends_less_is_never_slower(layout: dict[str, float]) -> None:
    """A copy for every expert, one for every GPU, the same permuted as it is sent, and hidden."""
    ways = (ALL_TO_ALLS, DEEP_EP, HYBRID_EP, replace(HYBRID_EP, exposed=0.3))
    split = plans(**{**layout, "tp": 1, "ep": 4})
    times = [step_time(MIXTURE, H100, split, "bf16", Software(dispatcher=w)).total for w in ways]
    assert [float(t) for t in times] == sorted((float(t) for t in times), reverse=True)
    assert times[0] > times[-1]


def test_splitting_work_keeps_flops() -> None:
    """Twice the GPUs by data parallelism take half of the computation."""
    one = step_time(DENSE, H100, plans(dp=8)).compute
    two = step_time(DENSE, H100, plans(dp=16)).compute
    assert two == pytest.approx(one / 2, rel=1e-9)


def test_streams_of_messages_reach_the_card() -> None:
    """Small ones cost their start, large ones the card's rate; through a link, the pair's."""
    alps = load_machine("alps")
    small, large = (float(stream(alps, size, through_card=True)) for size in (8.0, 1e9))
    assert small == pytest.approx(1.05e-6, rel=1e-2)
    assert 1e9 / large == pytest.approx(alps.nic.reached, rel=1e-2)
    near = float(stream(alps, 1e9, through_card=False))
    assert 1e9 / near == pytest.approx(alps.link.reached / 3, rel=1e-2)


@given(LAYOUTS)
@settings(deadline=None, max_examples=20)
def test_more_work_of_the_host_is_never_faster(layout: dict[str, float]) -> None:
    hosts = (CAPTURED, FUSED, EAGER, LOOPED)
    times = [step_time(MIXTURE, H100, plans(**layout), "bf16", Software(host=h)) for h in hosts]
    assert [float(t.total) for t in times] == sorted(float(t.total) for t in times)


@given(st.sampled_from([8, 64, 512]), st.sampled_from([1.0, 12.0]))
def test_more_messages_are_never_faster(dp: float, gathers: float) -> None:
    split = Plans.of(batch=dp, seq=4096, dp=dp, zero=3)
    times = [
        step_time(DENSE, H100, split, "bf16", Software(gathers=by * gathers)).data for by in (1, 2)
    ]
    assert times[0] < times[1]


@pytest.mark.parametrize(
    ("name", "less", "more"),
    [
        ("activations", Keeping(offloaded=True), Keeping()),
        ("activations", Keeping(), Keeping(routed=10.0)),
        ("logits", Keeping(chunk=1024.0), Keeping()),
    ],
)
def test_who_keeps_less_holds_less(name: str, less: Keeping, more: Keeping) -> None:
    layout = plans(zero=3, recompute=2)
    held = [getattr(training_memory(MIXTURE, layout, keeping), name) for keeping in (less, more)]
    assert held[0] < held[1]


def test_the_switch_fills_before_it_reduces_at_full_rate() -> None:
    """The time beyond the link's grows with the message, and then no more."""
    group = Group.of(H100, 8)
    sizes = [2.0**20 * n for n in (1, 64, 256, 1024)]
    times = [float(collective(H100, ALL_REDUCE, size, group)) for size in sizes]
    rates = np.diff(times) / np.diff(sizes)
    assert rates[0] > 1.1 * rates[1]
    assert rates[1] == pytest.approx(rates[2], rel=1e-6)
