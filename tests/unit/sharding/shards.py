"""Shardings to test with, and whole tensors cut by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from rpeg.sharding.boxes import Box, Held, Shape, Sharding, move, transfers

Array = NDArray[np.int64]
Arrays = Mapping[int, Sequence[Array]]

SHAPES: Mapping[str, Shape] = {"w": (6, 4), "b": (5,), "s": ()}


def globals_of(shapes: Mapping[str, Shape]) -> dict[str, Array]:
    """A tensor of each shape, all elements different."""
    made: dict[str, Array] = {}
    first = 0
    for name, shape in shapes.items():
        made[name] = np.arange(first, first + prod(shape)).reshape(shape)
        first += prod(shape)
    return made


def scattered(sharding: Sharding, whole: Mapping[str, Array]) -> dict[int, list[Array]]:
    """What each rank holds of whole tensors, by indexing."""
    return {
        rank: [whole[held.tensor][held.box.slices] for held in arrays]
        for rank, arrays in sharding.items()
    }


def gathered(sharding: Sharding, arrays: Arrays, shapes: Mapping[str, Shape]) -> dict[str, Array]:
    """Whole tensors from what the ranks hold."""
    target = {0: [Held(name, Box.whole(shape)) for name, shape in shapes.items()]}
    made = {name: np.full(shape, -1) for name, shape in shapes.items()}
    move(transfers(sharding, target), arrays, {0: list(made.values())})
    return made


@st.composite
def _grid(draw: st.DrawFn, name: str, shape: Shape) -> list[Held]:
    """A tensor cut into a grid of boxes."""
    sides = []
    for width in shape:
        cuts = draw(st.sets(st.integers(1, width - 1), max_size=2)) if width > 1 else set()
        edges = [0, *sorted(cuts), width]
        sides.append(list(pairwise(edges)))
    boxes = [Box((), ())]
    for side in sides:
        boxes = [Box((*b.low, lo), (*b.high, hi)) for b in boxes for lo, hi in side]
    return [Held(name, box) for box in boxes]


@st.composite
def shardings(draw: st.DrawFn) -> Sharding:
    """Every tensor somewhere, some boxes on several of up to four ranks."""
    ranks = draw(st.integers(1, 4))
    made: dict[int, list[Held]] = {rank: [] for rank in range(ranks)}
    for name, shape in SHAPES.items():
        for held in draw(_grid(name, shape)):
            for rank in draw(st.sets(st.integers(0, ranks - 1), min_size=1)):
                made[rank].append(held)
    return made
