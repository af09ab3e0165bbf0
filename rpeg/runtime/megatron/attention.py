"""Causal self-attention over packed sequences, between Megatron-Core's own linear layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from megatron.core.transformer.attention import SelfAttention
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rpeg.runtime.batches.packing import Packing
from rpeg.runtime.megatron.rotation import Angles, Heads, queries_keys_values
from rpeg.runtime.numerics.products import widens


@dataclass(frozen=True)
class Sequences:
    """What every layer needs to know of the tokens in front of it."""

    packing: Packing
    angles: Angles


class PackedSelfAttention(SelfAttention):  # type: ignore[misc]
    """Megatron-Core's self-attention with its parameters; what lies between them is our own."""

    def forward(
        self, hidden_states: Tensor, *, packed_seq_params: Any, **_: Any
    ) -> tuple[Tensor, Tensor | None]:
        """[tokens, 1, hidden] (with sequence parallelism this rank's part) to the same."""
        sequences: Sequences = packed_seq_params  # Megatron-Core hands it through untouched
        projected, _none = self.linear_qkv(hidden_states)
        q, k, v = queries_keys_values(
            projected.squeeze(1),
            self._heads(),
            sequences.angles,
            getattr(self.q_layernorm, "weight", None),
            getattr(self.k_layernorm, "weight", None),
            self.config.layernorm_epsilon,
        )
        mixed = self.core_attention(q, k, v, sequences.packing)
        out: tuple[Tensor, Tensor | None] = self.linear_proj(mixed.unsqueeze(1))
        return out

    def _heads(self) -> Heads:
        groups = self.num_query_groups_per_partition
        ratio = self.num_attention_heads_per_partition // groups
        return Heads(groups, ratio, self.hidden_size_per_attention_head)


class CausalAttention(torch.nn.Module):
    """Causal attention through torch's fused kernels, grouped queries included."""

    def __init__(self, config: Any, softmax_scale: float | None = None, **_: Any) -> None:
        super().__init__()
        self.scale = softmax_scale
        self.recompute = config.recompute_granularity == "selective"

    def forward(self, q: Tensor, k: Tensor, v: Tensor, packing: Packing) -> Tensor:
        """Queries [tokens, heads, dim], keys and values [tokens, groups, dim] to [tokens, heads x
        dim].
        """
        if self.recompute and torch.is_grad_enabled():
            out = checkpoint(
                self._attend, q, k, v, packing, use_reentrant=False, preserve_rng_state=False
            )
            return out  # type: ignore[no-any-return]
        return self._attend(q, k, v, packing)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, packing: Packing) -> Tensor:
        rectangles = zip(packing.spread(q), packing.spread(k), packing.spread(v), strict=True)
        return packing.collect([self._rectangle(*parts) for parts in rectangles]).flatten(1)

    def _rectangle(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """All [sequences, longest, heads or groups, dim]."""
        dtype = q.dtype
        if widens(dtype):
            q, k, v = q.float(), k.float(), v.float()
        out = F.scaled_dot_product_attention(
            q.transpose(1, 2),
            k.transpose(1, 2),
            v.transpose(1, 2),
            is_causal=True,
            scale=self.scale,
            enable_gqa=q.shape[2] != k.shape[2],
        )
        return out.transpose(1, 2).to(dtype)
