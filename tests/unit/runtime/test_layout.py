"""Layouts, their rank grids and what Megatron-Core is told of them; no processes are started."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpeg.runtime.errors import LayoutFailure
from rpeg.runtime.groups import partition
from rpeg.runtime.layout import Layout
from rpeg.runtime.megatron.config import transformer_config
from rpeg.runtime.models.shape import ModelShape


def test_tensor_parallel_ranks_are_neighbours_and_stages_are_far_apart() -> None:
    layout = Layout(dp=2, tp=2, pp=2)
    assert partition(layout, ["tp"]) == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert partition(layout, ["dp"]) == ((0, 4), (1, 5), (2, 6), (3, 7))
    assert partition(layout, ["pp"]) == ((0, 2), (1, 3), (4, 6), (5, 7))
    assert partition(layout, ["tp", "pp"]) == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert partition(layout, []) == tuple((rank,) for rank in range(8))


@given(st.permutations([2, 3, 1]), st.permutations([1, 2, 3]))
def test_a_process_has_the_same_share_in_every_layout(one: list[int], other: list[int]) -> None:
    first, second = (
        Layout(dp=2, **dict(zip(("tp", "pp", "cp"), widths, strict=True)))
        for widths in (one, other)
    )
    replicas = partition(first, ["tp", "pp", "cp"])
    assert replicas == partition(second, ["tp", "pp", "cp"])
    assert replicas == (tuple(range(6)), tuple(range(6, 12)))


SHAPE = ModelShape(
    family="qwen2",
    vocab=32,
    hidden=32,
    ffn=64,
    layers=4,
    heads=4,
    kv_heads=2,
    head_dim=8,
    eps=1e-6,
    rope_theta=1e4,
    rope_factor=None,
    qkv_bias=True,
    qk_norm=False,
    tied=True,
    positions=64,
    init_std=0.02,
)


def test_interleaved_stages_never_batch_their_exchanges() -> None:
    config = transformer_config(SHAPE, Layout(pp=2, vpp=2), "fp32")
    assert (config.overlap_p2p_comm, config.batch_p2p_comm) == (True, False)
    assert config.virtual_pipeline_model_parallel_size == 2
    assert transformer_config(SHAPE, Layout(pp=2), "fp32").batch_p2p_comm


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (Layout(tp=4), r"2 key-value heads can't be split 4 ways \(tp=4\)"),
        (Layout(pp=3), r"4 layers can't be split 3 ways \(pp=3\)"),
        (Layout(pp=4, vpp=2), r"4 layers can't be split 8 ways \(pp=4 x vpp=2\)"),
    ],
)
def test_a_model_that_a_layout_cannot_split(layout: Layout, message: str) -> None:
    with pytest.raises(LayoutFailure, match=message):
        transformer_config(SHAPE, layout, "fp32")


@pytest.mark.parametrize(
    ("layout", "processes", "message"),
    [
        (Layout(dp=2), 1, "dp x tp x pp x cp = 2"),
        (Layout(cp=2), 2, "must be 1 in this version"),
        (Layout(zero=3), 1, "zero must be 0 or 1"),
        (Layout(zero=1), 1, "needs dp > 1"),
        (Layout(vpp=2), 1, "needs pp > 1"),
        (Layout(sp=True), 1, "needs tp > 1"),
    ],
)
def test_a_layout_that_does_not_fit_says_why(layout: Layout, processes: int, message: str) -> None:
    with pytest.raises(LayoutFailure, match=message):
        layout.check(processes)
