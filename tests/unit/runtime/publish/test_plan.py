"""The plan of a publish: every element once to everybody who wants it, in buckets of one size."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rpeg.runtime.publish import buckets
from rpeg.runtime.publish.plan import Bucket, Share, plan
from rpeg.sharding.boxes import Held, NotHeldError, Sharding
from rpeg.sharding.decoder import Split
from tests.unit.runtime.publish.models import SHAPE, after, cut, weights, whole

TYPES = {name: torch.float32 for name, _ in SHAPE.tensors()}
WIDTHS = {name: dtype.itemsize for name, dtype in TYPES.items()}


@st.composite
def shardings(draw: st.DrawFn) -> Sharding:
    pp = draw(st.sampled_from([1, 2]))
    vpp = draw(st.sampled_from([1, 2])) if pp > 1 else 1
    split = Split(SHAPE, tp=draw(st.sampled_from([1, 2])), pp=pp, vpp=vpp)
    replicas = draw(st.integers(1, 3))
    return split.flat_sharding(replicas) if draw(st.booleans()) else split.sharding(replicas)


def test_a_large_stretch_needs_no_unpacking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rpeg.runtime.publish.plan.LARGE_BYTES", 200)
    found = planned(Split(SHAPE, tp=2).sharding(), {0: whole()}, 1 << 20)
    in_place = {piece.tensor for bucket in found if bucket.in_place for piece in bucket.pieces}
    assert "model.embed_tokens.weight" in in_place  # rows
    assert "model.layers.0.mlp.down_proj.weight" not in in_place  # columns
    test_any_layout_is_filled_from_any_other()


def planned(source: Sharding, target: Sharding, size: int) -> list[Bucket]:
    """From the first processes of a launch to the ones behind them."""
    shares = {rank: Share(holds=held) for rank, held in source.items()}
    behind = after(len(source), target)
    return plan(shares | {rank: Share(wants=held) for rank, held in behind.items()}, WIDTHS, size)


@settings(max_examples=12, deadline=None)
@given(shardings(), shardings(), st.sampled_from([256, 1 << 20]))
def test_any_layout_is_filled_from_any_other(source: Sharding, target: Sharding, size: int) -> None:
    model, behind = weights(0), after(len(source), target)
    found = {r: [torch.zeros(h.box.shape) for h in held] for r, held in behind.items()}
    for bucket in planned(source, target, size):
        message = torch.zeros(bucket.size, dtype=torch.uint8)
        buckets.pack(bucket, message, cut(source[bucket.source], model), TYPES)
        for place, rank in enumerate(bucket.targets):
            stretch = buckets.stretch(bucket, place, found[rank])
            if stretch is None:
                buckets.unpack(bucket, message, place, found[rank], TYPES)
            else:
                stretch.copy_(message)
        longest = max(p.box.size * 4 // p.box.shape[0] for p in bucket.pieces)
        assert bucket.size <= max(size, longest)
    for rank, held in behind.items():
        assert all(map(torch.equal, found[rank], cut(held, model)))


def sent(found: list[Bucket]) -> Counter[int]:
    """Bytes by sender, each message counted."""
    total: Counter[int] = Counter()
    for bucket in found:
        total[bucket.source] += bucket.size * len(bucket.targets)
    return total


def test_replicas_share_the_sending() -> None:
    by_rank = sent(planned(Split(SHAPE).sharding(3), {0: whole(), 1: whole()}, 256))
    assert set(by_rank) == {0, 1, 2}
    assert max(by_rank.values()) < 2 * min(by_rank.values())


def test_receivers_of_the_same_share_a_message() -> None:
    found = planned(Split(SHAPE, tp=2).sharding(), {0: whole(), 1: whole()}, 1 << 20)
    assert {bucket.targets for bucket in found} == {(2, 3)}


def test_a_large_tensor_is_cut_and_small_ones_share_a_bucket() -> None:
    found = planned(Split(SHAPE).sharding(), {0: whole()}, 256)
    pieces = Counter(piece.tensor for bucket in found for piece in bucket.pieces)
    assert pieces["model.embed_tokens.weight"] == 2  # 13 x 8 floats: 416 bytes
    assert any(len(bucket.pieces) > 1 for bucket in found)
    assert len(planned(Split(SHAPE).sharding(), {0: whole()}, 1 << 20)) == 1


def test_what_nobody_holds_is_refused() -> None:
    part: list[Held] = whole()[1:]
    with pytest.raises(NotHeldError, match=r"no rank holds model.embed_tokens.weight"):
        planned({0: part}, {0: whole()}, 256)
