"""The layer specification: Megatron-Core's layers and linears, with fused modules between them.

No TransformerEngine is needed, on CPUs or on GPUs; the replaced modules go in through the public
ModuleSpec.
"""

from __future__ import annotations

from types import SimpleNamespace

import torch.distributed as dist
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.mlp import MLPSubmodules
from megatron.core.transformer.transformer_block import (
    TransformerBlockSubmodules,
    get_num_layers_to_build,
)

from rpeg.runtime.megatron.attention import CausalAttention, PackedSelfAttention
from rpeg.runtime.megatron.norm import RMSNorm
from rpeg.runtime.megatron.swiglu import GatedMLP


def layer_spec(
    config: TransformerConfig, tp: dist.ProcessGroup, pp_rank: int, chunk: int | None
) -> TransformerBlockSubmodules:
    """The layers of pipeline stage `pp_rank`, of one chunk where stages have several."""
    layer = get_gpt_layer_local_spec(qk_layernorm=config.qk_layernorm, normalization="RMSNorm")
    layer.submodules.input_layernorm = RMSNorm
    layer.submodules.pre_mlp_layernorm = RMSNorm
    layer.submodules.mlp = _gated_mlp(layer.submodules.mlp.submodules, tp)
    layer.submodules.self_attention.module = PackedSelfAttention
    attention = layer.submodules.self_attention.submodules
    attention.core_attention = CausalAttention
    if config.qk_layernorm:
        attention.q_layernorm = attention.k_layernorm = RMSNorm
    here = get_num_layers_to_build(config, vp_stage=chunk, pp_rank=pp_rank)
    return TransformerBlockSubmodules(layer_specs=[layer] * here, layer_norm=RMSNorm)


def _gated_mlp(submodules: MLPSubmodules, tp: dist.ProcessGroup) -> SimpleNamespace:
    """A ModuleSpec in all but type: to one of a class that it does not know, Megatron-Core would
    not give the group, and say so for every layer.
    """
    return SimpleNamespace(module=GatedMLP, submodules=submodules, params={"tp_group": tp})
