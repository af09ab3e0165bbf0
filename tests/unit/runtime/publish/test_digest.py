"""Digests of parts add up to that of the whole, and no damage goes unseen."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rpeg.runtime.publish.digest import WORDS, checksum, digest, nothing, shown
from rpeg.sharding.boxes import Box
from rpeg.sharding.decoder import Split
from tests.unit.runtime.publish.models import SHAPE, cut, weights

DTYPES = [torch.float32, torch.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("tp", "pp"), [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_any_layout_has_the_digest_of_the_whole(dtype: torch.dtype, tp: int, pp: int) -> None:
    whole = weights(3, dtype)
    total, counted = nothing(), set()
    for held in Split(SHAPE, tp=tp, pp=pp).sharding().values():
        for part, array in zip(held, cut(held, whole), strict=True):
            if part not in counted:  # norms are held more than once
                total += digest(part.tensor, part.box, array)
            counted.add(part)
    assert shown(total) == checksum(whole.items()) == checksum(reversed(whole.items()))


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**9), st.sampled_from(DTYPES))
def test_damage_shows(seed: int, dtype: torch.dtype) -> None:
    draw = random.Random(seed)
    values = torch.randn(draw.randint(1, 40), draw.randint(2, 40)).to(dtype)
    damaged = damage(values, draw)
    same = torch.equal(values.view(torch.uint8), damaged.view(torch.uint8))
    box = Box.whole(tuple(values.shape))
    assert same == (digest("w", box, values) == digest("w", box, damaged)).all()


def damage(values: torch.Tensor, draw: random.Random) -> torch.Tensor:
    """One bit turned, a run of bytes zeroed, or two rows or columns exchanged."""
    result = values.clone()
    flat = result.view(torch.uint8).view(-1)
    kind = draw.choice(["bit", "zeros", "rows", "columns"])
    if kind == "bit":
        flat[draw.randrange(len(flat))] ^= 1 << draw.randrange(8)
    elif kind == "zeros":
        begin = draw.randrange(len(flat))
        flat[begin : begin + draw.randint(1, 64)] = 0
    else:
        axis = 0 if kind == "rows" else 1
        order = list(range(result.shape[axis]))
        draw.shuffle(order)
        result = result.index_select(axis, torch.tensor(order))
    return result


def test_name_and_place_count() -> None:
    values = torch.randn(4, 4)
    here, there = Box((0, 0), (4, 4)), Box((1, 0), (5, 4))
    found = [digest("a", here, values), digest("b", here, values), digest("a", there, values)]
    assert len({shown(d) for d in found}) == 3
    assert all(len(d) == WORDS for d in found)


def test_a_transposed_or_reused_tensor_is_another() -> None:
    values = torch.randn(4, 4)
    assert checksum([("a", values)]) != checksum([("a", values.T.contiguous())])
    pair = torch.randn(2, 3, 3)
    assert checksum([("a", pair[0]), ("b", pair[1])]) != checksum([("a", pair[1]), ("b", pair[0])])
