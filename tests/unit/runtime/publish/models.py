"""A model whose weights differ from version to version, whole and spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from rpeg.runtime.models.shape import ModelShape
from rpeg.sharding.boxes import Box, Held, Sharding

SHAPE = ModelShape(
    family="qwen3",
    vocab=13,
    hidden=8,
    ffn=12,
    layers=4,
    heads=4,
    kv_heads=2,
    head_dim=2,
    eps=1e-6,
    rope_theta=1e4,
    rope_factor=None,
    qkv_bias=True,
    qk_norm=True,
    tied=True,
    positions=64,
    init_std=0.02,
)


def weights(version: int, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """Whole tensors, other ones for each version."""
    generator = torch.Generator().manual_seed(version)
    return {
        name: torch.randn(shape, generator=generator).to(dtype) for name, shape in SHAPE.tensors()
    }


def whole() -> list[Held]:
    """All of the model."""
    return [Held(name, Box.whole(shape)) for name, shape in SHAPE.tensors()]


def cut(held: Sequence[Held], tensors: Mapping[str, Tensor]) -> list[Tensor]:
    """The arrays of a process that holds so much."""
    return [tensors[part.tensor][part.box.slices].clone() for part in held]


def after(ranks: int, sharding: Sharding) -> dict[int, Sequence[Held]]:
    """The same, behind so many other processes."""
    return {ranks + rank: held for rank, held in sharding.items()}
