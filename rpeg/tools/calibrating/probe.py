"""The tiny forward pass that tells what Python's launches take, and small products.

With one sequence a decode step is all launches; with many, what a sequence adds beyond its FLOPs
and bytes is the two small products of each head. Both are solved for in the formula of decode steps
(`rpeg.cost.generation`), so that it gives back the times measured.
"""

from __future__ import annotations

from collections.abc import Sequence

from rpeg.cost.generation import EAGER_ELEMENTS, EAGER_LAYER
from rpeg.tools.calibrating.measured import Timed

LAYERS, HIDDEN, FFN, HEADS, VOCABULARY = 2, 128, 384, 4, 32
HEAD_DIM = HIDDEN // HEADS
PAST = 12
"""Tokens in the cache before each sequence's next one."""

SEQUENCES = (1, 128)
"""Of the two steps that are timed."""

FLOPS = 2.0 * LAYERS * (4 * HIDDEN**2 + 3 * HIDDEN * FFN)
"""Of a sequence's token."""


def launch_s(steps: Sequence[Timed], flops_per_s: float) -> float:
    """Seconds of one launch; of each step `work` is its sequences."""
    one = min(steps, key=lambda step: step.work)
    return max(one.seconds - one.work * FLOPS / flops_per_s, 0.0) / (LAYERS * EAGER_LAYER)


def product_s(
    steps: Sequence[Timed], flops_per_s: float, bytes_per_s: float, width: float
) -> float:
    """Seconds of one small product, on a device whose numbers have `width` bytes."""
    few, many = sorted(steps, key=lambda step: step.work)
    moved = width * LAYERS * HIDDEN * (EAGER_ELEMENTS + 2.0 * PAST)
    each = (many.seconds - few.seconds) / (many.work - few.work)
    left = each - FLOPS / flops_per_s - moved / bytes_per_s
    return max(left, 0.0) / (2.0 * HEADS * LAYERS)
