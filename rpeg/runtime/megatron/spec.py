"""The layer specification: Megatron-Core's local layers with torch's fused attention and RMSNorm.

No TransformerEngine is needed, on CPUs or on GPUs; the replaced modules go in through the public
ModuleSpec.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.transformer_block import (
    TransformerBlockSubmodules,
    get_num_layers_to_build,
)
from torch import Tensor

from rpeg.runtime.megatron.norm import RMSNorm


class CausalAttention(torch.nn.Module):
    """Causal attention over whole right-padded sequences through torch's fused kernels, grouped
    queries included.
    """

    def __init__(
        self,
        config: TransformerConfig,
        layer_number: int,
        attn_mask_type: Any,
        attention_type: str,
        attention_dropout: float | None = None,
        softmax_scale: float | None = None,
        **_: Any,
    ) -> None:
        super().__init__()
        self.scale = softmax_scale

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **_: Any
    ) -> Tensor:
        """query [sequence, batch, heads, head dim] to [sequence, batch, heads x head dim]."""
        q, k, v = (x.permute(1, 2, 0, 3) for x in (query, key, value))
        grouped = q.shape[1] != k.shape[1]
        out = F.scaled_dot_product_attention(
            q, k, v, is_causal=True, scale=self.scale, enable_gqa=grouped
        )
        return out.permute(2, 0, 1, 3).flatten(2)


def layer_spec(
    config: TransformerConfig, pp_rank: int, chunk: int | None
) -> TransformerBlockSubmodules:
    """The layers of pipeline stage `pp_rank`, of one chunk where stages have several."""
    layer = get_gpt_layer_local_spec(qk_layernorm=config.qk_layernorm, normalization="RMSNorm")
    layer.submodules.input_layernorm = RMSNorm
    layer.submodules.pre_mlp_layernorm = RMSNorm
    attention = layer.submodules.self_attention.submodules
    attention.core_attention = CausalAttention
    if config.qk_layernorm:
        attention.q_layernorm = attention.k_layernorm = RMSNorm
    here = get_num_layers_to_build(config, vp_stage=chunk, pp_rank=pp_rank)
    return TransformerBlockSubmodules(layer_specs=[layer] * here, layer_norm=RMSNorm)
