"""What a publish delivers is compared with what was sent."""

from __future__ import annotations

import pytest
import torch

from rpeg.runtime.errors import WeightMismatch
from rpeg.runtime.publish.digest import checksum
from rpeg.runtime.publish.received import Copy


def test_damaged_weights_are_noticed() -> None:
    weights = {"w": torch.arange(6.0).view(2, 3), "b": torch.ones(3, dtype=torch.bfloat16)}
    copy = Copy(weights, version=3, checksum=checksum(weights.items()))
    assert copy.checked() is weights
    weights["w"][1, 2] += 1e-6
    with pytest.raises(WeightMismatch, match="version 3 arrived damaged"):
        copy.checked()
