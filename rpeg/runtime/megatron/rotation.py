"""Queries and keys out of the fused projection: norm and rotation in one pass over memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rpeg.runtime.megatron.norm import inverse_rms, rms_norm_backward, wide
from rpeg.runtime.numerics.blocks import blocks


@dataclass(frozen=True)
class Heads:
    """How the projection's columns are laid out: for each group its queries, a key and a value."""

    groups: int
    """Key-value heads, on this process."""
    ratio: int
    """Query heads of each."""
    dim: int

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Views of x [tokens, columns]: queries [tokens, groups, ratio, dim], keys and values
        [tokens, groups, 1, dim].
        """
        heads = x.view(-1, self.groups, self.ratio + 2, self.dim)
        q, k, v = heads.split([self.ratio, 1, 1], dim=2)
        return q, k, v


@dataclass(frozen=True)
class Angles:
    """Cosines and sines of every token's rotation, both [tokens, head dim / 2] float32."""

    cos: Tensor
    sin: Tensor

    def __getitem__(self, rows: slice) -> tuple[Tensor, Tensor]:
        """Those of some tokens, ready to multiply [tokens, groups, heads, dim / 2]."""
        return self.cos[rows, None, None], self.sin[rows, None, None]


def queries_keys_values(
    qkv: Tensor,
    heads: Heads,
    angles: Angles,
    q_norm: Tensor | None,
    k_norm: Tensor | None,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Rotated queries [tokens, groups x ratio, dim] and keys [tokens, groups, dim], and values.

    With `q_norm` and `k_norm` [dim], each head is first normed to root mean square 1 and scaled by
    them (Qwen3, arXiv:2505.09388). Computed in float32, rounded once.
    """
    q, k, v = _Prepare.apply(qkv, q_norm, k_norm, heads, angles, eps)  # type: ignore[no-untyped-call]
    return q, k, v


class _Prepare(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        qkv: Tensor,
        q_norm: Tensor | None,
        k_norm: Tensor | None,
        heads: Heads,
        angles: Angles,
        eps: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.save_for_backward(qkv, q_norm, k_norm)
        ctx.settings = heads, angles, eps
        queries, keys, values = heads.split(qkv)
        q, k = (_forward(*part, angles, eps) for part in ((queries, q_norm), (keys, k_norm)))
        return q, k, values.flatten(1, 2).contiguous()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        qkv, q_norm, k_norm = ctx.saved_tensors
        heads, angles, eps = ctx.settings
        dq, dk, dv = gradients
        dqkv = torch.empty_like(qkv)
        queries, keys, _ = heads.split(qkv)
        dqueries, dkeys, dvalues = heads.split(dqkv)
        dq_norm = _backward(dq, queries, q_norm, angles, eps, out=dqueries)
        dk_norm = _backward(dk, keys, k_norm, angles, eps, out=dkeys)
        dvalues.copy_(dv.view_as(dvalues))
        return dqkv, dq_norm, dk_norm, None, None, None


def _forward(x: Tensor, norm: Tensor | None, angles: Angles, eps: float) -> Tensor:
    """x [tokens, groups, heads, dim], normed and rotated, as [tokens, groups x heads, dim]."""
    out = x.new_empty(x.shape)
    for rows in blocks(x):
        block = wide(x[rows])
        if norm is not None:
            block = (block * inverse_rms(block, eps)).mul_(wide(norm))
        _rotate(block, *angles[rows], out=out[rows])
    return out.flatten(1, 2)


def _backward(
    gradient: Tensor, x: Tensor, norm: Tensor | None, angles: Angles, eps: float, out: Tensor
) -> Tensor | None:
    """Writes the gradient of x into `out`; the gradient of the norm's weight, if there is one.

    The inverse of a rotation is its transpose: the one by the negative angle.
    """
    gradient = gradient.view_as(x)
    dnorm = None if norm is None else torch.zeros_like(wide(norm))
    for rows in blocks(x):
        cos, sin = angles[rows]
        g = wide(gradient[rows])
        g = _rotate(g, cos, -sin, out=torch.empty_like(g))
        if norm is not None and dnorm is not None:
            block = wide(x[rows])
            g, part = rms_norm_backward(g, block, wide(norm), inverse_rms(block, eps))
            dnorm += part
        out[rows] = g
    return None if norm is None or dnorm is None else dnorm.to(norm.dtype)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor, out: Tensor) -> Tensor:
    """Rotates the pairs (x_i, x_{i + dim / 2}) of the last dimension into `out`."""
    a, b = x.chunk(2, dim=-1)
    left, right = out.chunk(2, dim=-1)
    left.copy_((a * cos).addcmul_(b, sin, value=-1.0))
    right.copy_((b * cos).addcmul_(a, sin))
    return out
