"""Tensors one below the other are a view where they lie so, and a copy elsewhere."""

from __future__ import annotations

import torch

from rpeg.runtime.numerics.stacking import stacked


def test_parts_of_a_split_are_stacked_without_a_copy() -> None:
    whole = torch.arange(24.0).view(8, 3)
    a, b, c = whole.split([2, 5, 1])
    found = stacked([a, b, c])
    assert torch.equal(found, whole) and found.data_ptr() == whole.data_ptr()
    assert torch.equal(stacked([b, c]), whole[2:]) and stacked([b, c]).data_ptr() == b.data_ptr()
    one, two = torch.arange(5).split([2, 3])
    assert stacked([one, two]).tolist() == list(range(5))


def test_others_are_copied() -> None:
    whole = torch.arange(24.0).view(8, 3)
    a, b, c = whole.split([2, 5, 1])
    for parts in ([b, a], [a, c], [a, b.clone()], [a[:, :1], b[:, :1]], [a, a]):
        found = stacked(parts)
        assert torch.equal(found, torch.cat(parts)) and found.data_ptr() != whole.data_ptr()
