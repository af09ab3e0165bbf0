"""Working through large tensors a piece at a time, so that each piece stays in the cache."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

BLOCK = 1 << 18
"""Elements of a piece: 1 MiB of float32. Smaller ones cost more calls than they save traffic."""


def blocks(x: Tensor) -> Iterator[slice]:
    """Consecutive rows (first dimension) of x, about BLOCK elements each; all at once on GPUs.

    A chain of elementwise operations on each block reads memory once, as a fused kernel would.
    """
    rows = len(x)
    step = max(1, BLOCK * rows // max(x.numel(), 1)) if x.device.type == "cpu" else max(rows, 1)
    for first in range(0, rows, step):
        yield slice(first, first + step)
