"""The end of a batch in closed form, against the simulation of every sample."""

from __future__ import annotations

import numpy as np
import pytest

from rpeg.cost.architecture import Architecture
from rpeg.cost.architecture_files import load_architecture
from rpeg.cost.draining import drained_time, remaining
from rpeg.cost.generation import Engine, Requests, Serving, concurrency, generation_time
from rpeg.cost.lengths import Lengths
from rpeg.cost.simulation.batching import Decoding, ends
from tests.unit.cost.figures import DENSE, H100

MOE = load_architecture("mixtral-8x7b")
LENGTHS = Lengths(600.0, 4096.0, 0.8)
PROMPT = 100.0


def simulated(serving: Serving, number: int, engine: Engine, seed: int) -> float:
    """Seconds of one replica, step by step, at contexts' own cost."""
    asked = requests(number)
    slots = int(concurrency(serving, asked, engine))
    base, more = (serving.step(np.arange(1, slots + 1), past, engine) for past in (0.0, 1.0))
    read = float(serving.prefill(number * PROMPT, PROMPT)) / number
    decoding = Decoding(base.tolist(), float((more - base)[0]), read, PROMPT)
    drawn = np.rint(LENGTHS.drawn(number, np.random.default_rng(seed))).astype(int)
    return float(ends(drawn.tolist(), decoding).max())


def requests(number: int) -> Requests:
    mean, square = LENGTHS.average, LENGTHS.square
    return Requests.of(number, PROMPT, mean, square, LENGTHS.longest(number))


@pytest.mark.parametrize("shape", [DENSE, MOE], ids=["dense", "experts"])
@pytest.mark.parametrize("number", [32, 64, 90, 400], ids=["half", "all", "some wait", "refilled"])
def test_the_tail_of_a_batch(shape: Architecture, number: int) -> None:
    """Within 2 % of the mean over batches, wherever the slots stand."""
    serving = Serving.of(shape, H100, tp=8)
    engine = Engine(most_sequences=64.0)
    mean = np.mean([simulated(serving, number, engine, seed) for seed in range(400)])
    found = drained_time(serving, requests(number), LENGTHS, engine, 1.0)
    assert found == pytest.approx(mean, rel=0.02)


def test_it_is_more_than_two_widths_say() -> None:
    """All and one: what runs empty behind a queue that kept slots full is left out there."""
    serving, engine = Serving.of(DENSE, H100, tp=8), Engine(most_sequences=64.0)
    told = float(generation_time(serving, requests(400), engine))
    assert drained_time(serving, requests(400), LENGTHS, engine, 1.0) > 1.1 * told


def test_equal_lengths_end_together() -> None:
    equal, engine = Lengths(600.0, 4096.0, 0.0), Engine(most_sequences=64.0)
    asked = Requests.of(128.0, PROMPT, 600.0)
    serving = Serving.of(DENSE, H100, tp=8)
    expected = float(generation_time(serving, asked, engine))
    assert drained_time(serving, asked, equal, engine, 4.0) == expected


def test_more_replicas_have_a_slower_one() -> None:
    serving, engine = Serving.of(DENSE, H100, tp=8), Engine(most_sequences=64.0)
    one, many = (drained_time(serving, requests(90), LENGTHS, engine, n) for n in (1.0, 16.0))
    assert one < many


def test_what_is_left_behind_a_long_queue_is_what_renewals_leave() -> None:
    left = remaining(LENGTHS, 50.0)
    width = LENGTHS.quantile(1.0) / len(left)
    mean = LENGTHS.square / (2.0 * LENGTHS.average)
    assert float(left.sum()) * width == pytest.approx(mean, rel=0.02)
    assert np.all(np.diff(left) <= 0)
    fresh = remaining(LENGTHS, 0.0)
    assert float(fresh.sum()) * width == pytest.approx(LENGTHS.average, rel=0.02)
