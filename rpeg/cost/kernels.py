"""Time of single kernels: a roofline with a head and tail.

A kernel takes max(FLOPs / reached FLOP/s, bytes / reached bytes/s) plus a few microseconds in which
the GPU fills and drains. That last term is all the size-dependence a matmul needs: cuBLASLt on
A100, H100 and H200 (1024 to 16384 cubed) lies within 10 % of it.
"""

from __future__ import annotations

import numpy as np

from rpeg.cost.arrays import Array, larger
from rpeg.cost.hardware import Machine

BF16_BYTES, FP8_BYTES, FP4_BYTES = 2.0, 1.0, 0.5625
"""Bytes of an element; fp4 with one scale byte for 16."""

WIDTHS = {"bf16": BF16_BYTES, "fp8": FP8_BYTES, "fp4": FP4_BYTES, "fp32": 4.0}


def usual_width(machine: Machine) -> float:
    """Bytes of a number of the precision that a device usually computes in."""
    return WIDTHS[machine.usual]


def matmul(
    machine: Machine, precision: str, m: Array | float, k: Array | float, n: Array | float
) -> Array:
    """Seconds of an (m, k) by (k, n) product that reads `precision` and writes the device's usual
    one, bf16.
    """
    written = WIDTHS[machine.usual]
    width = WIDTHS[precision] if precision in machine.flops else written
    flops = 2.0 * m * k * n / machine.matmul_rate(precision)
    moved = (width * (m * k + k * n) + written * m * n) / machine.memory_rate
    return larger(flops, moved) + machine.kernel_s


def streamed(machine: Machine, moved: Array | float, kernels: float = 1.0) -> Array:
    """Seconds of `kernels` memory-bound kernels that move so many bytes together."""
    return np.asarray(moved / machine.memory_rate + kernels * machine.kernel_s)
