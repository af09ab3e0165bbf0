"""Samples on slots against a loop over tokens, and jobs on workers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpeg.cost.simulation.batching import Decoding, ends
from rpeg.cost.simulation.queues import served

LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=20)


def decoding(slots: int) -> Decoding:
    """A step takes 1 s and a tenth for each sequence, a hundredth for each token of context."""
    return Decoding([1 + 0.1 * n for n in range(1, slots + 1)], 0.01, 0.5, 7.0)


def token_by_token(lengths: list[int], engine: Decoding) -> list[float]:
    """The same engine, one token at a time."""
    waiting, running, clock = list(range(len(lengths))), dict[int, int](), 0.0
    done = [0.0] * len(lengths)
    while waiting or running:
        while waiting and len(running) < engine.slots:
            running[waiting.pop(0)] = 0
            clock += engine.prompt
        context = sum(engine.prompt_tokens + made for made in running.values())
        clock += engine.base[len(running) - 1] + engine.slope * context
        running = {sample: made + 1 for sample, made in running.items()}
        for sample in [s for s, made in running.items() if made == lengths[s]]:
            done[sample] = clock
            del running[sample]
    return done


@settings(deadline=None)
@given(LENGTHS, st.integers(1, 8))
def test_events_are_the_same_as_tokens(lengths: list[int], slots: int) -> None:
    engine = decoding(slots)
    np.testing.assert_allclose(ends(lengths, engine), token_by_token(lengths, engine))


@settings(deadline=None)
@given(LENGTHS, st.integers(1, 8), st.data())
def test_a_longer_response_never_ends_the_batch_sooner(
    lengths: list[int], slots: int, data: st.DataObject
) -> None:
    """With every slot taken from the start; a queue can come off better by luck."""
    slots = max(slots, len(lengths))
    which = data.draw(st.integers(0, len(lengths) - 1))
    longer = [n + 5 * (i == which) for i, n in enumerate(lengths)]
    assert max(ends(longer, decoding(slots))) >= max(ends(lengths, decoding(slots)))


def test_jobs_take_the_first_free_worker() -> None:
    assert served([4, 2, 1, 3], 2).tolist() == [4, 2, 3, 6]


@given(st.lists(st.floats(0.1, 9.0), min_size=1), st.integers(1, 9))
def test_workers_divide_the_work(seconds: list[float], workers: int) -> None:
    """Graham's bounds of list scheduling."""
    last = served(seconds, workers).max()
    even, longest = sum(seconds) / workers, max(seconds)
    assert last >= max(even, longest) * (1 - 1e-9)
    assert last <= even + (1 - 1 / workers) * longest + 1e-9
    assert served(seconds, 1).max() == pytest.approx(sum(seconds))
