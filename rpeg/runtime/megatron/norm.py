"""RMSNorm in one pass over memory each way: torch's own is a chain of small operations on CPUs."""

from __future__ import annotations

from typing import Any

import torch
from megatron.core.transformer import TransformerConfig
from torch import Tensor

from rpeg.runtime.numerics.blocks import blocks


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension (arXiv:1910.07467).

    Computed in float32, rounded once.
    """
    result: Tensor = _RMSNorm.apply(x, weight, eps)  # type: ignore[no-untyped-call]
    return result


def wide(x: Tensor) -> Tensor:
    """x in the type that norms and rotations are computed in: float32, or float64 as it is."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def inverse_rms(x: Tensor, eps: float) -> Tensor:
    """1 / sqrt(mean(x^2) + eps), the last dimension kept with size 1."""
    norm: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return norm.square_().div_(x.shape[-1]).add_(eps).rsqrt_()


def rms_norm_backward(
    gradient: Tensor, x: Tensor, weight: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor]:
    """(dx, dweight) of x scale weight, where `scale` is `inverse_rms(x)`; all wide.

    With n = x scale and h = g weight: dx = scale (h - n mean(h n)), dweight = sum g n.
    """
    normed = x * scale
    steep = gradient * normed
    inner = (steep @ weight).unsqueeze(-1).div_(x.shape[-1])
    dx = (gradient * weight).addcmul_(normed, inner, value=-1.0).mul_(scale)
    return dx, steep.flatten(0, -2).sum(dim=0)


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        tokens, factor = x.flatten(0, -2), wide(weight)
        out, scale = torch.empty_like(tokens), factor.new_empty(len(tokens), 1)
        for rows in blocks(tokens):
            block = wide(tokens[rows])
            scale[rows] = inverse_rms(block, eps)
            out[rows] = (block * scale[rows]).mul_(factor)
        ctx.save_for_backward(x, weight, scale)
        return out.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight, scale = ctx.saved_tensors
        tokens, gradient, factor = x.flatten(0, -2), gradients[0].flatten(0, -2), wide(weight)
        dx, dweight = torch.empty_like(tokens), torch.zeros_like(factor)
        for rows in blocks(tokens):
            parts = wide(gradient[rows]), wide(tokens[rows])
            dx[rows], part = rms_norm_backward(*parts, factor, scale[rows])
            dweight += part
        return dx.view_as(x), dweight.to(weight.dtype), None


class RMSNorm(torch.nn.Module):
    """RMSNorm that also works on sequence-parallel activations."""

    def __init__(
        self, config: TransformerConfig, hidden_size: int, eps: float = 1e-5, **_: Any
    ) -> None:
        super().__init__()
        self.eps = eps
        self.weight = torch.nn.Parameter(torch.ones(hidden_size, dtype=config.params_dtype))
        if config.sequence_parallel:
            # Each rank sees a part of the sequence: finalize_model_grads adds the gradients up.
            self.weight.sequence_parallel = True  # type: ignore[attr-defined]

    def forward(self, x: Tensor) -> Tensor:
        """Over the last dimension."""
        return rms_norm(x, self.weight, self.eps)
