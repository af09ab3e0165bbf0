"""Which counts of a model a layout splits."""

from __future__ import annotations

import pytest

from rpeg.divisibility import Counts, engine_misfits, misfits

DENSE = {
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "num_hidden_layers": 6,
    "intermediate_size": 96,
}


@pytest.mark.parametrize("name", ["num_experts", "n_routed_experts", "num_local_experts"])
def test_experts_are_split_too(name: str) -> None:
    counts = Counts.of_config({**DENSE, name: 12})
    assert counts.experts == 12
    assert list(misfits(counts, tp=4, pp=2, vpp=3, ep=6)) == []
    assert list(misfits(counts, tp=1, pp=1, vpp=1, ep=8)) == [
        "12 experts can't be split 8 ways (ep=8): write a divisor"
    ]


def test_a_dense_model_has_none() -> None:
    counts = Counts.of_config(DENSE)
    assert list(misfits(counts, tp=1, pp=1, vpp=1)) == []
    assert list(misfits(counts, tp=1, pp=1, vpp=1, ep=2)) == [
        "ep=2 spreads experts, and this model is dense: write ep=1, or leave it out"
    ]


def test_engines_copy_key_value_heads() -> None:
    counts = Counts.of_config(DENSE)
    told = "4 key-value heads can't be split 8 ways (tp=8): write a divisor"
    assert list(misfits(counts, tp=8, pp=1, vpp=1)) == [told]
    assert list(engine_misfits(counts, tp=8, pp=1)) == []
    assert [why.partition(" can't")[0] for why in engine_misfits(counts, tp=3, pp=1)] == [
        "8 attention heads",
        "4 key-value heads",
    ]
