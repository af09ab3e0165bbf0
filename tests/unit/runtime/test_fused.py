"""Fused modules against the plain formulas they stand for, with gradients, in float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rpeg.runtime.batches.packing import Packing
from rpeg.runtime.groups import Groups
from rpeg.runtime.megatron import shim
from rpeg.runtime.numerics import blocks, products
from rpeg.runtime.numerics.logits import VocabShard

shim.install()

from rpeg.runtime.megatron.norm import rms_norm  # noqa: E402
from rpeg.runtime.megatron.rotation import Angles, Heads, queries_keys_values  # noqa: E402
from rpeg.runtime.megatron.swiglu import swiglu  # noqa: E402

EPS = 1e-6
HEADS = Heads(groups=2, ratio=3, dim=4)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks, the last one short."""
    monkeypatch.setattr(blocks, "BLOCK", 64)


def draw(*size: int) -> Tensor:
    generator = torch.Generator().manual_seed(sum(size))
    return torch.randn(*size, generator=generator, dtype=torch.float64).requires_grad_()


def agree(fused: Callable[..., object], plain: Callable[..., object], *args: Tensor) -> None:
    torch.testing.assert_close(fused(*args), plain(*args))
    assert torch.autograd.gradcheck(fused, args)


def plain_norm(x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + EPS).sqrt() * weight


def test_rms_norm() -> None:
    agree(lambda x, w: rms_norm(x, w, EPS), plain_norm, draw(11, 3, 8), draw(8))


def test_swiglu() -> None:
    agree(swiglu, lambda x: F.silu(x[..., :12]) * x[..., 12:], draw(7, 1, 24))


@pytest.mark.parametrize("normed", [False, True])
def test_norm_and_rotation(normed: bool) -> None:
    angle = draw(9, 2).detach()
    angles = Angles(angle.cos(), angle.sin())

    def fused(qkv: Tensor, *norms: Tensor) -> tuple[Tensor, ...]:
        q_norm, k_norm = norms or (None, None)
        return queries_keys_values(qkv, HEADS, angles, q_norm, k_norm, EPS)

    def plain(qkv: Tensor, *norms: Tensor) -> tuple[Tensor, ...]:
        q, k, v = qkv.view(9, 2, 5, 4).split([3, 1, 1], dim=2)
        if norms:
            q, k = plain_norm(q, norms[0]), plain_norm(k, norms[1])
        turn = torch.polar(torch.ones_like(angle), angle)[:, None, None]
        q, k = (torch.complex(*x.chunk(2, dim=-1)) * turn for x in (q, k))
        parts = [torch.cat([x.real, x.imag], dim=-1).flatten(1, 2) for x in (q, k)]
        return *parts, v.flatten(1, 2)

    agree(fused, plain, draw(9, 40), *((draw(4), draw(4)) if normed else ()))


def test_logprob_and_entropy(groups: Groups) -> None:
    targets = torch.tensor([1, 5, 0, 6, 2])
    shard = VocabShard(groups.tp, width=8, vocab=7, pad_id=3)

    def plain(logits: Tensor) -> tuple[Tensor, Tensor]:
        kept = logits / 0.7 + torch.where(shard.banned, -1e30, 0.0)
        logp = kept.log_softmax(-1)
        chosen = logp.gather(-1, targets[:, None])[:, 0]
        return chosen, -(logp.exp() * logp).sum(-1)

    agree(lambda logits: shard.logprob(logits, targets, 0.7), plain, draw(5, 8))


def packed(sequences: list[Tensor]) -> Packing:
    sizes = np.array([len(sequence) for sequence in sequences])
    return Packing.of(pad_sequence(sequences, batch_first=True).numpy(), sizes)


def laid_out(lengths: list[int]) -> list[Tensor]:
    return list(torch.arange(sum(lengths)).split(lengths))


PACKED = {
    "one": laid_out([5]),
    "a rectangle": laid_out([4, 4, 4]),
    "alike": laid_out([3, 4, 4]),
    "uneven": laid_out([9, 2, 8, 1, 2]),
    "shared": [torch.tensor([0, 1, *rest]) for rest in ([2, 3], [4, 5, 6], [], [7])],
}


@pytest.mark.parametrize("name", PACKED)
def test_packed_sequences_are_the_rows_of_rectangles(name: str) -> None:
    sequences = PACKED[name]
    packing = packed(sequences)
    tokens = torch.arange(len(packing.places))
    rows = [row for rectangle in packing.spread(tokens) for row in rectangle.tolist()]
    padded = {tuple(row[: len(s)]) for s in sequences for row in rows if len(row) >= len(s)}
    assert {tuple(s.tolist()) for s in sequences} <= padded
    assert len(rows) == len(sequences)
    assert all(torch.equal(packing.places[s], torch.arange(len(s))) for s in sequences)
    assert packing.is_rectangle == (name in ("one", "a rectangle"))
    assert torch.equal(packing.collect(list(packing.spread(tokens))), tokens)


@pytest.mark.parametrize("name", PACKED)
def test_gradients_find_their_way_back_through_rectangles(name: str) -> None:
    """Sums over each row's past, as causal attention takes them; a shared token's are all alike."""
    packing = packed(PACKED[name])

    def rows_of(x: Tensor) -> Tensor:
        return packing.collect([rows.cumsum(dim=1) for rows in packing.spread(x)])

    def plain(x: Tensor) -> Tensor:
        sums = {int(t): x[s[: k + 1]].sum(dim=0) for s in PACKED[name] for k, t in enumerate(s)}
        return torch.stack([sums[t] for t in range(len(x))])

    agree(rows_of, plain, draw(len(packing.places), 2))


def test_widened_products_are_native_ones_up_to_a_rounding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, weight, bias = (t.detach().bfloat16() for t in (draw(6, 32), draw(16, 32), draw(16)))
    found = {}
    for units in (True, False):
        monkeypatch.setattr(products, "has_bf16_units", lambda units=units: units)
        found[units] = products.Weight(weight, bias)(x)
    assert found[False].dtype == torch.bfloat16
    exact = F.linear(x.float(), weight.float(), bias.float())
    rounding = exact.abs() * 2.0**-8 + 1e-6
    assert ((found[False].float() - exact).abs() <= rounding).all()
    assert ((found[False].float() - found[True].float()).abs() <= 2 * rounding).all()
