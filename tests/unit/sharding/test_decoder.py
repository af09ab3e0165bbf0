"""Megatron's layouts: every element held, the parts equal, any layout reached from any other."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpeg.runtime.models.shape import ModelShape
from rpeg.sharding.boxes import Sharding, move, transfers
from rpeg.sharding.decoder import Split, padded_vocab
from tests.unit.sharding.shards import gathered, globals_of, scattered

SHAPE = ModelShape(
    family="qwen3",
    vocab=13,
    hidden=8,
    ffn=12,
    layers=4,
    heads=4,
    kv_heads=2,
    head_dim=2,
    eps=1e-6,
    rope_theta=1e4,
    rope_factor=None,
    qkv_bias=True,
    qk_norm=True,
    tied=False,
    positions=64,
    init_std=0.02,
)
SHAPES = st.sampled_from(
    [SHAPE, replace(SHAPE, tied=True), SHAPE.as_critic(), SHAPE.as_actor_critic()]
)


@st.composite
def layouts(draw: st.DrawFn, shape: ModelShape) -> Sharding:
    """A layout of a model: replicated, or with flat shards."""
    pp = draw(st.sampled_from([1, 2]))
    vpp = draw(st.sampled_from([1, 2])) if pp > 1 else 1
    split = Split(shape, tp=draw(st.sampled_from([1, 2])), pp=pp, vpp=vpp)
    replicas = draw(st.integers(1, 3))
    flat = draw(st.booleans())
    return split.flat_sharding(replicas) if flat else split.sharding(replicas)


@settings(max_examples=30)
@given(SHAPES.flatmap(lambda s: st.tuples(st.just(s), layouts(s), layouts(s))))
def test_any_layout_is_reached_from_any_other(
    case: tuple[ModelShape, Sharding, Sharding],
) -> None:
    shape, source, target = case
    whole = globals_of(dict(shape.tensors()))
    arrays = {r: [np.full(h.box.shape, -1) for h in held] for r, held in target.items()}
    move(transfers(source, target), scattered(source, whole), arrays)
    assert [a.tolist() for held in arrays.values() for a in held] == [
        a.tolist() for held in scattered(target, whole).values() for a in held
    ]
    back = gathered(target, arrays, dict(shape.tensors()))
    assert all(np.array_equal(back[name], whole[name]) for name in whole)


@pytest.mark.parametrize(("tp", "pp", "vpp"), [(1, 1, 1), (2, 1, 1), (1, 2, 2), (2, 2, 1)])
def test_a_model_is_held_once_by_a_replica(tp: int, pp: int, vpp: int) -> None:
    count = _held(Split(SHAPE, tp=tp, pp=pp, vpp=vpp).sharding())
    for name, shape in SHAPE.tensors():
        rows = 1 if _sharded(name) else tp
        assert set(count[name, k] for k in range(int(np.prod(shape)))) == {rows}, name


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_flat_shards_hold_each_element_as_often_as_tensor_parallel_ranks(replicas: int) -> None:
    flat = _held(Split(SHAPE, tp=2, pp=2).flat_sharding(replicas))
    assert flat == _held(Split(SHAPE, tp=2, pp=2).sharding())


def test_a_tied_embedding_is_at_both_ends() -> None:
    sharding = Split(replace(SHAPE, tied=True), pp=2).sharding()
    held = [[h.tensor for h in sharding[rank]] for rank in (0, 1)]
    assert all("model.embed_tokens.weight" in names for names in held)


def test_chunks_take_turns_over_the_layers() -> None:
    split = Split(SHAPE, pp=2, vpp=2)
    sources = [[u.sources[0] for u in split.on_stage(stage)] for stage in (0, 1)]
    places = [stage for layer in "0123" for stage in (0, 1) if _has(sources[stage], layer)]
    assert places == [0, 1, 0, 1]


def test_gate_and_up_are_stacked_in_each_shard() -> None:
    split = Split(SHAPE, tp=2)
    unit = next(u for u in split.units() if u.join == "stack")
    assert split.local_shape(unit) == (12, 8)
    gate, up = split.blocks(unit, 1)
    assert (gate.row, gate.box.low, up.row, up.box.low) == (0, (6, 0), 6, (6, 0))


def test_heads_of_a_group_are_neighbours() -> None:
    split = Split(SHAPE, tp=2)
    unit = next(u for u in split.units() if u.join == "qkv")
    found = [(b.source.split(".")[-2], b.row, b.box.low[0]) for b in split.blocks(unit, 1)]
    assert found == [("q_proj", 0, 4), ("k_proj", 4, 2), ("v_proj", 6, 2)]


@given(st.integers(1, 300), st.sampled_from([1, 2, 4, 8]))
def test_padding_is_the_least_that_splits(vocab: int, tp: int) -> None:
    rows = padded_vocab(vocab, tp)
    assert rows % (8 * tp) == 0 and 0 <= rows - vocab < 8 * tp


def _has(sources: list[str], layer: str) -> bool:
    return any(source.startswith(f"model.layers.{layer}.") for source in sources)


def _sharded(name: str) -> bool:
    return not any(part in name for part in ("norm", "score"))


def _held(sharding: Sharding) -> Counter[tuple[str, int]]:
    """How many ranks hold each element, by tensor and flat index."""
    numbers = {n: np.arange(np.prod(s)).reshape(s) for n, s in SHAPE.tensors()}
    return Counter(
        (held.tensor, int(k))
        for arrays in sharding.values()
        for held in arrays
        for k in numbers[held.tensor][held.box.slices].flat
    )
