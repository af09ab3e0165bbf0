"""Batches in completion order under a virtual clock: whatever the times and lengths, every law of
the bound holds, and every policy for what grew too old comes up.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import pytest

from rpeg.runtime.errors import StalenessExceeded
from rpeg.runtime.pools.admission import Window
from rpeg.runtime.pools.flight import Flight, Group, Overflow
from tests.unit.runtime.test_admission import drawn
from tests.unit.runtime.virtual_clock import (
    Flown,
    InCompletionOrder,
    Policy,
    Setting,
)

RUNS = 1000
OVERFLOWS: tuple[Overflow, ...] = get_args(Overflow)


def policy(seed: int) -> Policy:
    """Some policy and batch size."""
    draw = random.Random(f"policy {seed}")
    overflow = draw.choice(OVERFLOWS)
    return Policy(
        size=draw.randint(1, 6),
        bound=draw.choice(("strict", "strict", "strict", "head")),
        overflow=overflow,
        again=overflow == "resume" and draw.random() < 0.3,
    )


def broken_laws(setting: Setting, policy: Policy, flown: Flown) -> list[str]:
    """Of one run: what is wrong with it, by its own log."""
    found, k, size = [], setting.staleness, policy.size
    goes_on = policy.bound == "head" or (policy.overflow == "resume" and not policy.again)
    for i, batch in enumerate(flown.batches, setting.first):
        if len(batch) != size:
            found.append(f"batch {i} has {len(batch)} groups")
        ages = [i - version for _, version in batch]
        if min(ages) < 0 or (max(ages) > k and not goes_on):
            found.append(f"batch {i} is {ages} old")
    used = Counter(prompt for batch in flown.batches for prompt, _ in batch)
    if any(count > 1 for count in used.values()) or used.keys() & set(flown.dropped):
        found.append("a prompt counts twice")
    if len(flown.batches) != setting.steps - setting.first:
        found.append(f"{len(flown.batches)} batches")
    if flown.most > (k + 1) * size + size - 1:
        found.append(f"{flown.most} prompts under way")
    fires = {"drop": flown.dropped, "truncate": flown.truncated, "defer": flown.deferred}
    for word, groups in fires.items():
        wanted = policy.bound == "strict" and (
            policy.overflow == word or (policy.again and word == "defer")
        )
        if groups and not wanted:
            found.append(f"{word} of {groups}")
    return found


def flown(setting: Setting, policy: Policy) -> Flown:
    run = InCompletionOrder(setting, policy)
    run.run()
    return run.flown


def test_a_thousand_runs() -> None:
    fired: Counter[str] = Counter()
    for seed in range(RUNS):
        setting, said = drawn(seed), policy(seed)
        result = flown(setting, said)
        assert broken_laws(setting, said, result) == [], (setting, said)
        for word in ("truncated", "dropped", "deferred"):
            fired[word] += bool(getattr(result, word))
        order = [prompt for batch in result.batches for prompt, _ in batch]
        fired["overtaken"] += order != sorted(order)
        fired["head, past the window"] += said.bound == "head" and any(
            i - version > setting.staleness
            for i, batch in enumerate(result.batches, setting.first)
            for _, version in batch
        )
    assert all(count >= 10 for count in fired.values()), fired
    assert len(fired) == 5


@pytest.mark.parametrize("overflow", OVERFLOWS)
def test_without_a_window_each_batch_has_its_own_prompts(overflow: Overflow) -> None:
    """In the order in which they end; no policy has anything to do."""
    for seed in range(30):
        setting = replace(drawn(seed), staleness=0, first=0)
        result = flown(setting, Policy(size=4, overflow=overflow))
        for i, batch in enumerate(result.batches):
            assert {prompt for prompt, _ in batch} == {*range(4 * i, 4 * i + 4)}
            assert {version for _, version in batch} == {i}
        assert not result.truncated + result.dropped + result.deferred
        assert [p for batch in result.batches for p, _ in batch] == result.ended


def test_the_oldest_weights_leave_little_to_overtake() -> None:
    """The first batches are of version 0 and start together; then each is on its own."""
    for seed in range(30):
        setting = replace(drawn(seed), staleness=2, first=0, choice="oldest", steps=8)
        result = flown(setting, Policy(size=3))
        assert {p for batch in result.batches[:3] for p, _ in batch} == {*range(9)}
        for i, batch in enumerate(result.batches):
            assert i < 3 or {p for p, _ in batch} == {*range(3 * i, 3 * i + 3)}
            assert {version for _, version in batch} == {max(0, i - 2)}


# ---- planted violations


class Careless(Flight[int]):
    """Waits for nothing that would be too old later."""

    def _owed(self, step: int) -> list[Group[int]] | None:
        return []


def wider(window: Window, **settings: Any) -> Flight[int]:
    """Lets groups start, and wait, a step too long."""
    return Flight(Window(window.staleness + 1, window.first), **settings)


@pytest.mark.parametrize("broken, overflow", [(Careless, "wait"), (wider, "wait"), (wider, "drop")])
def test_planted_violations_are_caught(
    broken: Callable[..., Flight[int]], overflow: Overflow
) -> None:
    """By the certificate, which lets no such batch train."""
    found = 0
    for seed in range(40):
        setting = replace(drawn(seed), staleness=2, capacity=3, steps=30, first=0, choice="newest")
        try:
            InCompletionOrder(setting, Policy(size=4, overflow=overflow), broken).run()
        except StalenessExceeded:
            found += 1
    assert found >= 5


# ---- one batch at a time


def in_flight(overflow: Overflow) -> tuple[Flight[str], dict[str, Group[str]]]:
    """Window 1, batches of two: `a` and `b` of version 0 are in flight, `c` and `d` have ended;
    batch 1 is next, of version 1: `e` and `f` have ended too.
    """
    flight = Flight[str](Window(1), size=2, steps=9, overflow=overflow)
    flight.offer("abcd")
    groups = {group.prompt: group for group in flight.admit(0, 0)}
    for name in "cd":
        flight.end(groups[name])
    assert [group.prompt for group in flight.take(0).groups] == ["c", "d"]
    flight.offer("ef")
    groups |= {group.prompt: group for group in flight.admit(1, 1)}
    for name in "fe":
        flight.end(groups[name])
    return flight, groups


def names(groups: object) -> str:
    return "".join(group.prompt for group in groups)  # type: ignore[attr-defined]


def test_waits_for_the_old() -> None:
    flight, groups = in_flight("wait")
    assert not flight.ready(1)
    with pytest.raises(LookupError):
        flight.take(1)
    flight.end(groups["b"])
    assert not flight.ready(1)
    flight.end(groups["a"])
    assert names(flight.take(1).groups) == "ba"


def test_truncates_the_old() -> None:
    taken = in_flight("truncate")[0].take(1)
    assert (names(taken.groups), names(taken.truncated)) == ("ab", "ab")


def test_drops_the_old() -> None:
    flight, _ = in_flight("drop")
    taken = flight.take(1)
    assert (names(taken.groups), names(taken.dropped), flight.prompts) == ("fe", "ab", [])
    assert flight.lacks(2, 1) == 2


def test_defers_the_old() -> None:
    flight, _ = in_flight("defer")
    flight.offer("g")
    taken = flight.take(1)
    assert (names(taken.groups), names(taken.deferred)) == ("fe", "ab")
    assert names(flight.admit(2, 2)) == "abg"


def test_goes_on_with_the_old() -> None:
    flight, groups = in_flight("resume")
    assert names(flight.take(1).groups) == "fe"
    flight.end(groups["a"])
    flight.end(groups["b"])
    assert names(flight.take(2).groups) == "ab"
