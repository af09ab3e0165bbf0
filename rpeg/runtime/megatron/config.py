"""From a model's shape and layout to Megatron-Core's configuration."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from megatron.core.transformer import TransformerConfig

from rpeg.divisibility import Counts, misfits
from rpeg.runtime.errors import LayoutFailure
from rpeg.runtime.layout import Layout
from rpeg.runtime.models.shape import ModelShape

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def check_fit(shape: ModelShape, layout: Layout) -> None:
    """Raises LayoutFailure if the layout can't shard the model evenly."""
    counts = Counts(shape.layers, shape.heads, shape.kv_heads, shape.ffn)
    for why in misfits(counts, tp=layout.tp, pp=layout.pp, vpp=layout.vpp):
        raise LayoutFailure(why)


def transformer_config(shape: ModelShape, layout: Layout, dtype: str) -> TransformerConfig:
    """Megatron-Core's configuration of `shape` under `layout`; weights are loaded, never drawn."""
    check_fit(shape, layout)
    return TransformerConfig(
        num_layers=shape.layers,
        hidden_size=shape.hidden,
        ffn_hidden_size=shape.ffn,
        num_attention_heads=shape.heads,
        num_query_groups=shape.kv_heads,
        kv_channels=shape.head_dim,
        layernorm_epsilon=shape.eps,
        normalization="RMSNorm",
        qk_layernorm=shape.qk_norm,
        add_bias_linear=False,
        add_qkv_bias=shape.qkv_bias,
        gated_linear_unit=True,
        activation_func=F.silu,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        tensor_model_parallel_size=layout.tp,
        pipeline_model_parallel_size=layout.pp,
        sequence_parallel=layout.sp,
        params_dtype=DTYPES[dtype],
        pipeline_dtype=DTYPES[dtype],
        bf16=dtype == "bf16",
        # Micro-batches differ in length; the dispatcher's name is checked even without experts.
        variable_seq_lengths=layout.pp > 1,
        moe_token_dispatcher_type="alltoall",
        **_interleaving(layout),
        use_cpu_initialization=not torch.cuda.is_available(),
        perform_initialization=False,
        bias_activation_fusion=False,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
        apply_rope_fusion=False,
        persist_layer_norm=False,
        gradient_accumulation_fusion=False,
        **_recompute(layout),
    )


def _interleaving(layout: Layout) -> dict[str, object]:
    """Several chunks a stage (arXiv:2104.04473). With two stages, activations and gradients go
    between the same two processes; batched, they are taken for one another, without an error.
    """
    if layout.vpp == 1:
        return {}
    return {
        "virtual_pipeline_model_parallel_size": layout.vpp,
        "overlap_p2p_comm": True,
        "batch_p2p_comm": False,
    }


def _recompute(layout: Layout) -> dict[str, object]:
    match layout.recompute:
        case "full":
            return {
                "recompute_granularity": "full",
                "recompute_method": "uniform",
                "recompute_num_layers": 1,
            }
        case "selective":
            # Attention only (arXiv:2205.05198): the fused kernels keep little of it anyway.
            return {"recompute_granularity": "selective"}
        case "none":
            return {}
