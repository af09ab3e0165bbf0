"""Laws of transfers: all arrives, once, from its place; equal shardings; two moves; balance."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rpeg.sharding.boxes import Box, Held, NotHeldError, Sharding, move, transfers
from tests.unit.sharding.shards import SHAPES, Arrays, gathered, globals_of, scattered, shardings

BOXES = st.tuples(*[st.tuples(st.integers(0, 5), st.integers(0, 5)) for _ in range(3)]).map(
    lambda sides: Box(tuple(min(s) for s in sides), tuple(max(s) + 1 for s in sides))
)


def moved(source: Sharding, target: Sharding, arrays: Arrays) -> dict[int, list[NDArray[np.int64]]]:
    """The target's arrays, filled from the source's; -1 where nothing arrived."""
    empty = {r: [np.full(h.box.shape, -1) for h in held] for r, held in target.items()}
    move(transfers(source, target), arrays, empty)
    return empty


def same(one: Arrays, other: Arrays) -> bool:
    return one.keys() == other.keys() and all(
        all(map(np.array_equal, one[rank], other[rank])) for rank in one
    )


@settings(max_examples=40)
@given(BOXES, BOXES)
def test_what_is_left_and_what_is_common_are_the_box(one: Box, other: Box) -> None:
    common = one.meet(other)
    rest = list(one.minus(common)) if common else [one]
    count = Counter(
        point for box in [*rest, *([common] if common else [])] for point in _points(box)
    )
    assert set(count) == set(_points(one))
    assert set(count.values()) == {1}


def _points(box: Box) -> list[tuple[int, ...]]:
    inside = np.ndindex(*box.shape)
    return [tuple(a + o for a, o in zip(point, box.low, strict=True)) for point in inside]


@settings(max_examples=40)
@given(shardings(), shardings())
def test_every_element_arrives_from_its_place(source: Sharding, target: Sharding) -> None:
    whole = globals_of(SHAPES)
    assert same(moved(source, target, scattered(source, whole)), scattered(target, whole))


@settings(max_examples=40)
@given(shardings(), shardings())
def test_every_element_arrives_once(source: Sharding, target: Sharding) -> None:
    plan = transfers(source, target)
    for rank, held in target.items():
        for index, one in enumerate(held):
            hits = np.zeros(one.box.shape, dtype=int)
            for t in plan:
                if (t.dst, t.dst_array) == (rank, index):
                    hits[t.dst_box.slices] += 1
            assert (hits == 1).all()


@settings(max_examples=40)
@given(shardings(), shardings())
def test_what_is_sent_is_received(source: Sharding, target: Sharding) -> None:
    plan = transfers(source, target)
    assert all(t.src_box.shape == t.dst_box.shape and t.elements > 0 for t in plan)
    wanted = sum(held.box.size for ranks in target.values() for held in ranks)
    assert sum(t.elements for t in plan) == wanted


@settings(max_examples=40)
@given(shardings())
def test_equal_shardings_move_nothing(sharding: Sharding) -> None:
    assert all(t.src == t.dst for t in transfers(sharding, sharding))


@settings(max_examples=40)
@given(shardings(), shardings(), shardings())
def test_two_moves_are_one(a: Sharding, b: Sharding, c: Sharding) -> None:
    start = scattered(a, globals_of(SHAPES))
    assert same(moved(b, c, moved(a, b, start)), moved(a, c, start))


@settings(max_examples=40)
@given(st.integers(1, 4), st.integers(1, 12))
def test_replicas_share_the_sending(replicas: int, readers: int) -> None:
    held = [Held("w", Box((0,), (6,)))]
    source = {rank: held for rank in range(replicas)}
    target = {rank + replicas: held for rank in range(readers)}
    sent = Counter({rank: 0 for rank in source})
    for t in transfers(source, target):
        sent[t.src] += t.elements
    assert max(sent.values()) - min(sent.values()) <= 6


def test_what_nobody_holds_is_named() -> None:
    source = {0: [Held("w", Box((0, 0), (2, 3)))]}
    with pytest.raises(NotHeldError, match=r"no rank holds w\[2:3, 0:3\], rank 5 needs it"):
        transfers(source, {5: [Held("w", Box((1, 0), (3, 3)))]})


def test_gathering_undoes_scattering() -> None:
    whole = globals_of({"w": (4, 3)})
    rows: Mapping[int, Sequence[Held]] = {
        0: [Held("w", Box((0, 0), (1, 3)))],
        1: [Held("w", Box((1, 0), (4, 3)))],
    }
    assert np.array_equal(gathered(rows, scattered(rows, whole), {"w": (4, 3)})["w"], whole["w"])
