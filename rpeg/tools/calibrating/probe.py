"""The tiny forward pass that measures the cost of launches from Python and of small products.

With one sequence a decode step is all launches; with many, what a sequence adds beyond its FLOPs
and bytes is the two small products of each head. Both are solved for in the formula of decode steps
(`rpeg.cost.generation`), so that it gives back the times measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rpeg.cost.generation import EAGER_ELEMENTS, EAGER_LAYER
from rpeg.tools.calibrating.measured import Timed

LAYERS, HIDDEN, FFN, HEADS, VOCABULARY = 2, 128, 384, 4, 32
HEAD_DIM = HIDDEN // HEADS
PAST = 12
"""Tokens in the cache before each sequence's next one."""

SLOTS = PAST + 5
"""Slots of the cache, which is filled one by one: some are empty until the end."""

CHUNKS = 2
"""Chunks that take turns, each with a cache: in a step, too, other data has passed through the
processor's caches.
"""

SEQUENCES = (1, 128)
"""Sequences of the two steps that are timed."""

WEIGHTS = LAYERS * (4 * HIDDEN**2 + 3 * HIDDEN * FFN)


@dataclass(frozen=True)
class Launching:
    """What Python's way of computing costs, in seconds."""

    launch_s: float
    """Of one operation."""
    product_s: float
    """Of one small product among others."""


@dataclass(frozen=True)
class Reached:
    """What kernels of the device reach."""

    flops_per_s: float
    bytes_per_s: float
    width: float
    """Bytes of a number."""

    def step(self, sequences: float) -> float:
        """Seconds of a step without launches and products."""
        flops = 2.0 * WEIGHTS * sequences / self.flops_per_s
        read = self.width * WEIGHTS / self.bytes_per_s
        moved = self.width * LAYERS * HIDDEN * (EAGER_ELEMENTS + 2.0 * PAST) / self.bytes_per_s
        return max(flops, read) + sequences * moved


def launching(steps: Sequence[Timed], reached: Reached) -> Launching:
    """Both, from the steps' times; of each step `work` is its sequences."""
    few, many = sorted(steps, key=lambda step: step.work)
    left_few, left_many = (max(s.seconds - reached.step(s.work), 0.0) for s in (few, many))
    each = max(left_many - left_few, 0.0) / (many.work - few.work)
    launches = max(left_few - few.work * each, 0.0)
    return Launching(launches / (LAYERS * EAGER_LAYER), each / (2.0 * HEADS * LAYERS))


def attending(timed: Sequence[Timed], flops_per_s: float) -> float:
    """Seconds that attention takes for a head of a short sequence, beyond its FLOPs."""
    flops = 2.0 * PAST**2 * HEAD_DIM
    return max(min(one.seconds / one.work for one in timed) - flops / flops_per_s, 0.0)
