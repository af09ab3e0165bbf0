"""RMSNorm in few passes over memory: torch's own is a chain of small operations on CPUs."""

from __future__ import annotations

from typing import Any

import torch
from megatron.core.transformer import TransformerConfig
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension (arXiv:1910.07467).

    Statistics are float32; the scaled x is rounded to its own type before the weight multiplies it.
    """
    result: Tensor = _RMSNorm.apply(x, weight, eps)  # type: ignore[no-untyped-call]
    return result


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
        scale = torch.rsqrt(norm.square() / x.shape[-1] + eps)
        ctx.save_for_backward(x, weight, scale)
        return (x * scale).to(x.dtype) * weight

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        """With n = x scale and h = g weight: dx = scale (h - n mean(h n)), dweight = sum g n."""
        (gradient,) = gradients
        x, weight, scale = ctx.saved_tensors
        normed = x * scale
        steep = gradient * normed
        inner = (steep @ weight.to(steep.dtype)).unsqueeze(-1) / x.shape[-1]
        dx = (gradient * weight - normed * inner) * scale
        dweight = steep.reshape(-1, x.shape[-1]).sum(dim=0)
        return dx.to(x.dtype), dweight.to(weight.dtype), None


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
