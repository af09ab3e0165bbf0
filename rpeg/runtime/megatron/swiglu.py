"""The gated MLP with one pass over memory between its two products."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from megatron.core.transformer.mlp import MLP
from torch import Tensor

from rpeg.runtime.numerics.blocks import blocks


def swiglu(x: Tensor) -> Tensor:
    """silu(gate) * up, where x [..., 2 k] is gate and up side by side (arXiv:2002.05202)."""
    result: Tensor = _SwiGLU.apply(x.flatten(0, -2))  # type: ignore[no-untyped-call]
    return result.view(*x.shape[:-1], -1)


class _SwiGLU(torch.autograd.Function):
    """Keeps only its input; silu is computed again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        gate, up = x.chunk(2, dim=-1)
        out = x.new_empty(up.shape)
        for rows in blocks(x):
            torch.mul(F.silu(gate[rows]), up[rows], out=out[rows])
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """dup = g silu(gate); dgate = g up silu'(gate)."""
        (gradient,), (x,) = gradients, ctx.saved_tensors
        dx = torch.empty_like(x)
        (gate, up), (dgate, dup) = x.chunk(2, dim=-1), dx.chunk(2, dim=-1)
        for rows in blocks(x):
            g = gradient[rows]
            torch.mul(F.silu(gate[rows]), g, out=dup[rows])
            steep = torch.ops.aten.silu_backward(g * up[rows], gate[rows])
            dgate[rows].copy_(steep)
        return dx


class GatedMLP(MLP):  # type: ignore[misc]
    """Megatron-Core's MLP, its products kept, around one fused activation."""

    def forward(self, hidden_states: Tensor, **_: Any) -> tuple[Tensor, Tensor | None]:
        """[tokens, 1, hidden] to the same, and no bias."""
        both, _none = self.linear_fc1(hidden_states)
        out: tuple[Tensor, Tensor | None] = self.linear_fc2(swiglu(both))
        return out
