"""Bounded asynchrony under a virtual clock: whatever the times, every law of the bound holds."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from rpeg.runtime.errors import StalenessExceeded
from rpeg.runtime.pools.admission import Ahead, Certificate, Queue, Versions, Window
from tests.unit.runtime.virtual_clock import (
    Batch,
    Deadlock,
    Parts,
    Ran,
    Setting,
    TwoPools,
    one_pool,
)

RUNS = 1000


def drawn(seed: int) -> Setting:
    """A run with some bound, some capacity and times with heavy tails."""
    draw = random.Random(seed)
    first = draw.choice((0, 0, 3))
    return Setting(
        seed,
        staleness=draw.randrange(5),
        capacity=draw.randint(1, 5),
        choice=draw.choice(("newest", "oldest")),
        steps=first + draw.randint(1, 12),
        first=first,
        spread=draw.choice((0.0, 0.5, 1.0, 2.0)),
        resumed=draw.random() < 0.3,
    )


def broken_laws(setting: Setting, ran: Ran) -> list[str]:
    """Of one run: what is wrong with it, by its own log."""
    found, k = [], setting.staleness
    if ran.trained != list(range(setting.first, setting.steps)):
        found.append(f"trained {ran.trained}")
    if ran.longest > min(setting.capacity, k + 1):
        found.append(f"{ran.longest} batches waited")
    for i, spans in ran.written.items():
        if not max(setting.first, i - k) <= min(spans) <= max(spans) <= i:
            found.append(f"batch {i} of versions {spans}")
        if spans != sorted(spans):
            found.append(f"batch {i} went back: {spans}")
    for i, there in ran.there.items():
        wanted = max(there) if setting.choice == "newest" else max(setting.first, i - k)
        if ran.written[i][0] != wanted or wanted not in there:
            found.append(f"batch {i} of {ran.written[i][0]}, {there} were there")
    return found


def test_a_thousand_runs() -> None:
    lags: set[int] = set()
    for seed in range(RUNS):
        setting = drawn(seed)
        ran = TwoPools(setting, Parts()).run()
        assert broken_laws(setting, ran) == [], setting
        lags |= {*ran.tokens}
    assert lags == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("choice", ["newest", "oldest"])
def test_width_0_is_synchronous(choice: str) -> None:
    for seed in range(50):
        setting = replace(drawn(seed), staleness=0, choice=choice)
        ran = TwoPools(setting, Parts()).run()
        assert ran.written == {i: [i] * len(spans) for i, spans in ran.written.items()}


def test_more_staleness_is_never_slower() -> None:
    for seed in range(100):
        setting = replace(drawn(seed), choice="oldest", first=0)
        seconds = [TwoPools(replace(setting, staleness=k), Parts()).run().seconds for k in range(4)]
        assert seconds == sorted(seconds, reverse=True)


def test_the_oldest_version_repeats_whatever_the_times() -> None:
    runs = [Setting(seed, 2, 2, "oldest", 9, spread=2.0) for seed in range(30)]
    written = [TwoPools(setting, Parts()).run().written for setting in runs]
    assert all(one == written[0] for one in written)


def test_one_pool_works_ahead() -> None:
    for seed in range(100):
        setting = replace(drawn(seed), first=0, choice="oldest")
        setting = replace(setting, capacity=setting.staleness + 1)
        ran = one_pool(setting, Parts())
        assert broken_laws(setting, ran) == []
        assert {b: v for b, (v,) in ran.written.items()} == {
            i: max(0, i - setting.staleness) for i in range(setting.steps)
        }


# ---- planted violations


class Hasty(Versions[None]):
    """Starts a batch with whatever is there."""

    def _chosen(self, step: int, version: int | None = None) -> tuple[int, None] | None:
        return self._held[-1] if self._held else None


class Forgetful(Versions[None]):
    """Takes the first version that came, for ever."""

    def take(self, step: int) -> tuple[int, None]:
        super().take(step)
        return self.window.first, None


class Stack(Queue[Batch]):
    """Hands out the last batch first, under the number that was asked for."""

    def take(self, step: int) -> Batch:
        return self._held.pop()[1]


class Eager(Ahead):
    """Makes one batch too many."""

    def due(self, step: int):  # type: ignore[no-untyped-def]
        yield from super().due(step + 1)


def wider(staleness: int, first: int) -> Window:
    return Window(staleness + 1, first)


BUGS = {
    "last in, first out": Parts(queue=Stack),
    "starts too soon": Parts(versions=Hasty),
    "keeps the first weights": Parts(versions=Forgetful),
    "one step too wide": Parts(window=wider),
}


@pytest.mark.parametrize("bug", BUGS)
def test_planted_violations_are_caught(bug: str) -> None:
    settings = [
        replace(drawn(seed), staleness=2, capacity=4, choice="newest", steps=30, first=0)
        for seed in range(40)
    ]
    assert sum(caught(setting, BUGS[bug]) for setting in settings) >= 5


def caught(setting: Setting, parts: Parts) -> bool:
    """Whether the certificate stops a run, or the laws find that it took batches out of order: the
    certificate lets nothing else through.
    """
    try:
        ran = TwoPools(setting, parts).run()
    except StalenessExceeded:
        return True
    except Deadlock:
        return False
    found = broken_laws(setting, ran)
    assert all(text.startswith("trained") for text in found)
    return bool(found)


def test_a_queue_without_room_for_a_batch_stands_still() -> None:
    with pytest.raises(Deadlock):
        TwoPools(Setting(0, 1, 0, "newest", 3), Parts()).run()


# ---- the certificate


def test_head_counts_and_does_not_refuse() -> None:
    certificate = Certificate(Window(1), "head")
    certificate.consume(5, {0: 3, 4: 2})
    certificate.consume(6, {4: 1, 9: 0})
    assert certificate.tokens == {0: 3, 4: 3}


def test_strict_refuses_one_token() -> None:
    certificate = Certificate(Window(1))
    certificate.consume(5, {0: 3, 1: 2, 2: 0})
    with pytest.raises(StalenessExceeded, match="2 versions old, the pipeline allows 1"):
        certificate.consume(6, {0: 1000, 2: 1})
    assert certificate.tokens == {0: 3, 1: 2}


def test_weights_of_the_future_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="update 3 trains tokens of version 4"):
        Certificate(Window(1)).consume(3, {-1: 1})


def test_batches_and_versions_come_in_order() -> None:
    queue, versions = Queue[str](2), Versions[str](Window(1), "oldest")
    with pytest.raises(ValueError):
        queue.put(1, "b")
    queue.put(0, "a")
    with pytest.raises(LookupError):
        queue.take(1)
    versions.arrive(0, "w0")
    with pytest.raises(ValueError):
        versions.arrive(0, "w0")
    with pytest.raises(LookupError):
        versions.take(2)


def test_oldest_holds_what_is_needed() -> None:
    versions = Versions[None](Window(2), "oldest")
    for version in range(3):
        versions.arrive(version, None)
    assert [versions.take(i)[0] for i in (0, 1, 2)] == [0, 0, 0]
    assert versions.held == [1, 2]
    versions.arrive(3, None)
    assert (versions.take(3)[0], versions.held) == (1, [2, 3])
