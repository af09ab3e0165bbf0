"""What Megatron's command-line arguments say beyond a record's tables: shape, and what is kept."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rpeg.cost.architecture import Architecture, Experts, Latent
from rpeg.cost.memory import Keeping
from rpeg.cost.plans import FULL, NO_RECOMPUTE, SELECTIVE
from rpeg.cost.validation.rows import as_number

TOKENIZER = 50257
"""Of GPT-2, which Megatron's tests train with."""

Arguments = Mapping[str, Any]


def number(arguments: Arguments, name: str, default: float = 0) -> int:
    """The value of `--name`; the default where it is not a number."""
    return int(_number(arguments, name, default))


def _number(arguments: Arguments, name: str, default: float) -> float:
    value = arguments.get(f"--{name}")
    if str(value).strip() in ("0", "0.0"):
        return 0.0
    found = as_number(value)
    return default if found is None else found


def given(arguments: Arguments, name: str) -> bool:
    """Whether `--name` is set."""
    return bool(arguments.get(f"--{name}"))


def shaped(shape: Architecture, arguments: Arguments, tp: int) -> Architecture:
    """The architecture that the arguments describe; vocabularies are padded to 128·tp."""
    rope = arguments.get("--position-embedding-type") == "rope"
    hidden = shape.hidden
    return replace(
        shape,
        ffn=number(arguments, "ffn-hidden-size", 4 * hidden),
        head_width=number(arguments, "kv-channels", hidden // shape.heads),
        vocabulary=-(-TOKENIZER // (128 * tp)) * 128 * tp,
        gated=given(arguments, "swiglu"),
        tied=not given(arguments, "untie-embeddings-and-output-weights"),
        positions=0 if rope else number(arguments, "max-position-embeddings"),
        experts=_experts(arguments, hidden),
        latent=_latent(arguments) if given(arguments, "multi-latent-attention") else None,
    )


def _experts(arguments: Arguments, hidden: int) -> Experts | None:
    count = number(arguments, "num-experts")
    if not count:
        return None
    ffn = number(arguments, "ffn-hidden-size", 4 * hidden)
    return Experts(
        number=count,
        per_token=number(arguments, "moe-router-topk", 2),
        ffn=number(arguments, "moe-ffn-hidden-size", ffn),
        shared_ffn=number(arguments, "moe-shared-expert-intermediate-size"),
        dense_layers=_leading(str(arguments.get("--moe-layer-freq", ""))),
    )


def _leading(frequency: str) -> int:
    """Layers before the first mixture, of a frequency such as ([0]*3+[1]*12)."""
    return int(frequency.split("[0]*")[1].split("+")[0]) if "[0]*" in frequency else 0


def _latent(arguments: Arguments) -> Latent:
    return Latent(
        q_rank=number(arguments, "q-lora-rank"),
        kv_rank=number(arguments, "kv-lora-rank", 512),
        nope_width=number(arguments, "qk-head-dim", 128),
        rope_width=number(arguments, "qk-pos-emb-head-dim", 64),
        value_width=number(arguments, "v-head-dim", 128),
    )


def keeping(arguments: Arguments) -> Keeping:
    """What the run keeps: masks of dropout (on unless set to 0), scores, gradients in fp32."""
    unfused = arguments.get("--attention-backend") == "unfused"
    local = arguments.get("--transformer-impl") == "local"
    return Keeping(
        logit=_logit(arguments),
        dropout=_number(arguments, "hidden-dropout", 0.1) > 0,
        fused_attention=not (unfused or (local and not given(arguments, "use-flash-attn"))),
    )


def _logit(arguments: Arguments) -> float:
    """Bytes of a logit: bf16 and fp32, of each head; fp32 once more where the loss is one kernel;
    bf16 of every micro-batch whose gradient of the table waits.
    """
    fused = 4.0 if given(arguments, "cross-entropy-loss-fusion") else 0.0
    waiting = 2.0 * number(arguments, "wgrad-deferral-limit")
    return (6.0 + fused) * (1 + number(arguments, "mtp-num-layers")) + waiting


def stage(arguments: Arguments) -> int:
    """The stage of ZeRO."""
    if given(arguments, "use-megatron-fsdp"):
        return 3
    return 1 if given(arguments, "use-distributed-optimizer") else 0


def recompute(arguments: Arguments) -> int:
    """What is recomputed, or offloaded; selective means attention's core unless told otherwise."""
    kind = arguments.get("--recompute-granularity")
    if kind == "selective":
        modules = str(arguments.get("--recompute-modules", "core_attn"))
        modules += str(arguments.get("--offload-modules", ""))
        return SELECTIVE if "core_attn" in modules else NO_RECOMPUTE
    return FULL if kind == "full" else NO_RECOMPUTE


def chunks(arguments: Arguments, pp: float) -> float:
    """Chunks of layers on a pipeline rank, told as a number or by a layout such as Et|(tt|)*6mL."""
    layout = str(arguments.get("--pipeline-model-parallel-layout", ""))
    if layout:
        repeated = re.sub(r"\(([^)]*)\)\*(\d+)", lambda part: part[1] * int(part[2]), layout)
        return max((repeated.count("|") + 1) / pp, 1.0)
    return float(number(arguments, "num-virtual-stages-per-pipeline-rank", 1))
