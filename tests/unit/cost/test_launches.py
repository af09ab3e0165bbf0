"""What Python starts one by one: GPUs hide it behind work, on cores it comes on top."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rpeg.cost.generation import EAGER_LAYER, Engine, Serving, eager
from rpeg.cost.hardware import Machine
from rpeg.cost.layers import MEASURED
from rpeg.cost.lengths import Lengths
from rpeg.cost.profiles.layouts import Bound, Layout
from rpeg.cost.profiles.passes import forward, update
from rpeg.cost.profiles.sampling import Rollouts
from rpeg.cost.profiles.setting import Assumptions
from rpeg.cost.profiles.shapes import ModelShape
from rpeg.cost.profiles.workload import Rows
from rpeg.cost.training import Software
from tests.unit.cost.figures import DENSE, H100

CORE = replace(H100, flops={"fp32": 5e10}, launch_s=20e-6, product_s=1e-6)
TINY = replace(DENSE, layers=2, hidden=64, ffn=128, heads=2, kv_heads=2, head_width=32)
MODEL = ModelShape("actor", TINY, 1.0, 4.0)
ROWS = Rows(64.0, Lengths(8.0, 8.0, 0.0), Lengths(9.0, 9.0, 0.0), 8.0)


def slower(machine: Machine) -> Machine:
    return replace(machine, launch_s=machine.launch_s + 1e-6)


def test_a_core_takes_every_launch_besides() -> None:
    """A forward pass has a third of a layer's launches, an update all and the optimizer's."""
    own = Assumptions.measured(CORE).training
    one, two = (
        forward(MODEL, Layout(), Bound(), ROWS, machine, own).seconds
        for machine in (CORE, slower(CORE))
    )
    assert two - one == pytest.approx(2 * MEASURED.plain / 3 * 1e-6)
    trained = (
        update(MODEL, Layout(), Bound(), ROWS, machine, own, epochs=1, minibatches=1).seconds
        for machine in (CORE, slower(CORE))
    )
    before, after = trained
    assert after - before == pytest.approx(2 * (MEASURED.plain + own.layer_launches) * 1e-6)


def test_a_gpu_hides_launches_behind_work() -> None:
    long = Rows(64.0, Lengths(800.0, 800.0, 0.0), Lengths(900.0, 900.0, 0.0))
    dense = ModelShape("actor", DENSE, 1.0, 2.0)
    one, two = (
        forward(dense, Layout(), Bound(), long, machine, Software()).seconds
        for machine in (H100, slower(H100))
    )
    assert one == two


def test_the_embedded_engine_is_launched_operation_by_operation() -> None:
    """One chunk of 9 tokens: a pass over prompts and 8 steps, whatever the number of samples."""
    embedded = Rollouts(MODEL, Layout(), embedded=True, memory=None, most=128.0)
    one, two = (
        embedded.profile(ROWS, machine, Engine()).seconds for machine in (CORE, slower(CORE))
    )
    assert two - one == pytest.approx(9 * (2 * EAGER_LAYER + 80) * 1e-6)
    assert embedded.profile(ROWS.share(8.0), CORE, Engine()).seconds < one * 1.1
    served = replace(embedded, embedded=False)
    assert served.profile(ROWS, CORE, Engine()) == served.profile(ROWS, slower(CORE), Engine())


def test_small_products_count_by_sequence_and_head() -> None:
    serving = Serving.of(TINY, CORE, precision="fp32")
    more = Serving.of(TINY, replace(CORE, product_s=2e-6), precision="fp32")
    running = np.array([1.0, 128.0])
    longer = more.step(running, 10.0, eager(Engine())) - serving.step(
        running, 10.0, eager(Engine())
    )
    assert longer == pytest.approx(running * 2 * 2 * 2 * 1e-6)


def test_a_prompt_is_packed_once_for_its_responses() -> None:
    assert ROWS.packed == 64 * 8 + 8 * 8
    assert float(Layout().plans(ROWS, Bound(), 1.0).tokens) == pytest.approx(ROWS.packed)
