"""Rows get to the shares of another width, and back: each as often as it is needed, in order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor

from rpeg.runtime import crossing
from rpeg.runtime.crossing import Crossing
from rpeg.runtime.errors import LayoutFailure
from rpeg.runtime.trajectories import Row, Trajectories

PROCESSES = 12


class Threads:
    """A world whose processes are threads."""

    def __init__(self) -> None:
        self._me = threading.local()
        self._barrier = threading.Barrier(PROCESSES, timeout=60)
        self._sent: dict[int, Sequence[Any]] = {}
        self.exchanges = 0

    def rank(self) -> int:
        """Of the thread that asks."""
        found: int = self._me.rank
        return found

    def size(self) -> int:
        """Threads."""
        return PROCESSES

    def exchange(self, parts: Sequence[Any]) -> list[Any]:
        """As `world.exchange`."""
        self._sent[self.rank()] = parts
        self.exchanges += self.rank() == 0
        self._barrier.wait()
        found = [self._sent[source][self.rank()] for source in range(PROCESSES)]
        self._barrier.wait()
        return found

    def run(self, work: Callable[[int], Any]) -> list[Any]:
        """What `work` gives for each rank."""

        def as_rank(rank: int) -> Any:
            self._me.rank = rank
            return work(rank)

        with ThreadPoolExecutor(PROCESSES) as pool:
            return [each.result() for each in [pool.submit(as_rank, k) for k in range(PROCESSES)]]


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Threads:
    made = Threads()
    monkeypatch.setattr(crossing, "world", made)
    return made


def share(whole: Tensor, width: int, rank: int) -> Tensor:
    return whole.tensor_split(width)[rank // (PROCESSES // width)]


@pytest.mark.parametrize("run", [1, 2, 3, 4, 12])
@pytest.mark.parametrize("model", [1, 2, 3, 6])
def test_there_and_back(threads: Threads, run: int, model: int) -> None:
    whole = torch.arange(24 * 5).view(24, 5)

    def work(rank: int) -> tuple[Tensor, Tensor]:
        way = Crossing(run, model)
        there = way.there(share(whole, run, rank))
        return there, way.back(there * 2)

    for rank, (there, back) in enumerate(threads.run(work)):
        assert torch.equal(there, share(whole, model, rank))
        assert torch.equal(back, share(whole * 2, run, rank))
    # What a process holds already it takes from itself.
    assert threads.exchanges == (model % run != 0) + (run % model != 0)


def batch(first: int, samples: int) -> Trajectories:
    ordinals = torch.arange(first, first + samples) // 2
    mask = torch.ones(samples, 3, dtype=torch.bool)
    return Trajectories(
        rows=tuple(Row(str(o)) for o in ordinals.tolist()),
        prompt_ids=tuple((o,) for o in ordinals.tolist()),
        tokens=mask.long(),
        mask=mask,
        versions=mask.int() - 1,
        finished=mask.any(dim=1),
        ordinals=ordinals,
        samples=torch.arange(first, first + samples) % 2,
        texts=tuple(map(str, ordinals.tolist())),
        n=2,
        temperature=1.0,
    )


def test_whole_batches_cross_once(threads: Threads) -> None:
    def work(rank: int) -> Trajectories:
        way, y = Crossing(4, 2), batch(rank // 3 * 6, 6)
        there: Trajectories = way.there(y)
        assert way.there(y) is there, "asked for again in the same step"
        return there

    for rank, there in enumerate(threads.run(work)):
        first = rank // 6 * 12
        assert there.texts == batch(first, 12).texts
        assert torch.equal(there.ordinals, batch(first, 12).ordinals)
    assert threads.exchanges == 1


def test_prompts_stay_whole(threads: Threads) -> None:
    with pytest.raises(LayoutFailure, match="a share of 3 rows does not divide among"):
        threads.run(lambda rank: Crossing(1, 2).there(batch(0, 6)))


def test_fields_of_other_widths_are_made_alike(threads: Threads) -> None:
    fields = threads.run(lambda rank: Crossing(1, 2).back(torch.ones(2, 2 + rank // 6)))
    assert all(field.tolist() == [[1, 1, 0]] * 2 + [[1, 1, 1]] * 2 for field in fields)
