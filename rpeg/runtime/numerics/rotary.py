"""Rotary positions (RoFormer, arXiv:2104.09864), for training and for sampling."""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from rpeg.runtime.models.shape import ModelShape


def rotary_frequencies(shape: ModelShape) -> Tensor:
    """[head dim / 2] radians per position, stretched for long waves where Llama 3 does it.

    theta^(-2 i / d); the stretch blends from none, for waves shorter than 8192 / 4 positions, to
    1 / factor, for those longer than 8192 (arXiv:2407.21783, section 3.2).
    """
    exponents = torch.arange(0, shape.head_dim, 2, dtype=torch.float32) / shape.head_dim
    frequencies: Tensor = 1.0 / shape.rope_theta**exponents
    if shape.rope_factor is None:
        return frequencies
    turns = 8192 * frequencies / (2 * math.pi)
    blend = ((turns - 1.0) / (4.0 - 1.0)).clamp(0.0, 1.0)
    return frequencies * (blend + (1.0 - blend) / shape.rope_factor)


@functools.lru_cache(maxsize=16)
def rotary_table(shape: ModelShape, positions: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines, both [positions, head dim / 2] float32."""
    angles = torch.outer(torch.arange(positions).float(), rotary_frequencies(shape))
    return angles.cos(), angles.sin()
