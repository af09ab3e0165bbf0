"""From a record to what the model takes: architecture, machine, precision, era, layout."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Any

from rpeg.cost.architecture import Architecture, Experts, Latent
from rpeg.cost.architecture_files import find, load_architecture, shipped
from rpeg.cost.hardware import Machine
from rpeg.cost.layers import (
    ADAPTED,
    ALL_TO_ALLS,
    CAPTURED,
    DEEP_EP,
    EAGER,
    FALLBACK,
    FUSED,
    HYBRID_EP,
    LOOPED,
    USUAL,
    Dispatcher,
    Host,
)
from rpeg.cost.plans import FULL, NO_RECOMPUTE, SELECTIVE, Plans
from rpeg.cost.training import EXPOSED
from rpeg.cost.validation import megatron
from rpeg.cost.validation.machines import machine
from rpeg.cost.validation.rows import Row, Unknown, as_number, loaded


def precision(row: Row) -> str:
    """ "bf16", "fp8" or "fp4": of matmuls. Who doesn't say so means 16 bits, or fp8 in MLPerf."""
    text = re.sub(r"[^,;+()]*cache[^,;+()]*", "", row.text("precision"))
    if "fp4" in text:
        return "fp4"
    untold = not text and "mlcommons/training" in row.source
    narrow = any(word in text for word in ("fp8", "float8", "f8", "e4m3", "e5m2"))
    return "fp8" if narrow or untold else "bf16"


FAMILIES = (
    ("bridge", "bridge"),
    ("automodel", "automodel"),
    ("ptd-p", "megatron-2021"),
    ("maxtext", "jax"),
    ("pax", "jax"),
    ("jax", "jax"),
    ("prime-rl", "fsdp2"),
    ("fsdp2", "fsdp2"),
    ("torchtitan", "torchtitan"),
    ("torchtune", "fsdp2"),
    ("composer", "fsdp"),
    ("fsdp", "fsdp"),
    ("zero-3", "deepspeed"),
    ("deepspeed", "deepspeed"),
    ("internevo", "megatron-2021"),
    ("megatron", "megatron"),
    ("nemo", "megatron"),
    ("primus", "megatron"),
    ("nvidia", "megatron"),
    ("mxnet", "megatron"),
    ("ngc", "megatron"),
)
"""What a record calls its framework, and its generation; the first that fits counts."""


def family(row: Row) -> str:
    """The generation of the record's training framework."""
    text = row.text("framework")
    return next((name for word, name in FAMILIES if word in text), "other")


def era(row: Row) -> str:
    """Framework generation and precision: what two constants are fitted for."""
    return f"{family(row)} {precision(row)}"


PLAIN_MLP = ("gpt", "mpt", "nemotron", "opt", "bert", "bloom", "falcon", "t5", "megatron", "turing")
DEFAULT_VOCABULARY = 51200


def architecture(row: Row) -> Architecture:
    """The record's model, what it leaves out taken from a shipped one. Raises Unknown."""
    if named := row.file("model", "config"):
        return loaded(load_architecture, named)
    model = row.table("model")
    name = str(model.get("name", ""))
    known = find(name)
    layers, hidden = row.number("model", "layers"), row.number("model", "hidden")
    if layers is None or hidden is None:
        if known is None:
            raise Unknown("no model.layers and no architecture of that name")
        return known
    if known is None or (known.layers, known.hidden) != (layers, hidden):
        known = _alike(row, layers, hidden)
    return _described(row, known, name)


def _alike(row: Row, layers: float, hidden: float) -> Architecture | None:
    """The shipped mixture, or model with states, of that depth, width and number of experts."""
    number = row.number("model", "experts")
    return next(
        (
            shape
            for shape in shipped().values()
            if (shape.experts or shape.state_space)
            and (shape.layers, shape.hidden) == (layers, hidden)
            and (shape.experts.number if shape.experts else None) == number
        ),
        None,
    )


def _described(row: Row, known: Architecture | None, name: str) -> Architecture:
    def one(key: str, fallback: float) -> int:
        return int(row.number("model", key) or fallback)

    told = row.table("model").get("extra")
    extra: dict[str, Any] = told if isinstance(told, dict) else {}
    if extra.get("hybrid") and (known is None or known.state_space is None):
        raise Unknown("state-space layers aren't modelled")
    hidden = one("hidden", 0)
    heads = one("heads", known.heads if known else hidden // 128)
    if not 0 < heads <= hidden:
        raise Unknown("model.heads doesn't fit model.hidden")
    plain = any(word in name.lower() for word in PLAIN_MLP) and "oss" not in name.lower()
    gated = known.gated if known else not plain
    ffn = one("ffn", known.ffn if known else (4 * hidden if plain else hidden * 8 // 3))
    return Architecture(
        name=name,
        layers=one("layers", 0),
        hidden=hidden,
        ffn=ffn,
        heads=heads,
        kv_heads=one("kv_heads", known.kv_heads if known else heads),
        head_width=one("head_dim", known.head_width if known else hidden // heads),
        vocabulary=one("vocab", known.vocabulary if known else DEFAULT_VOCABULARY),
        gated=gated,
        tied=known.tied if known else plain,
        positions=known.positions if known else 0,
        sinks=_sinks(row, known, name),
        window=known.window if known else 0,
        full_every=known.full_every if known else 1,
        experts=_experts(row, known, ffn, extra),
        latent=known.latent if known else _latent(extra),
        state_space=known.state_space if known else None,
    )


def _sinks(row: Row, known: Architecture | None, name: str) -> bool:
    """FlexAttention fuses a sink as it does any other score."""
    sinks = known.sinks if known else "gpt-oss" in name.lower().replace(" ", "-")
    return sinks and "flexattn" not in row.text("framework")


def _experts(
    row: Row, known: Architecture | None, ffn: int, extra: dict[str, Any]
) -> Experts | None:
    number, each = row.number("model", "experts"), row.number("model", "topk")
    if not number or not each:
        return known.experts if known else None
    before = known.experts if known else None
    return Experts(
        number=int(number),
        per_token=int(each),
        ffn=int(row.number("model", "moe_ffn") or (before.ffn if before else ffn)),
        shared_ffn=int(
            row.number("model", "shared_expert_ffn") or (before.shared_ffn if before else 0)
        ),
        dense_layers=int(
            as_number(extra.get("first_k_dense")) or (before.dense_layers if before else 0)
        ),
        every=before.every if before else 1,
        latent=before.latent if before else 0,
    )


def _latent(extra: dict[str, Any]) -> Latent | None:
    names = ("q-lora-rank", "kv-lora-rank", "qk-head-dim", "qk-pos-emb-head-dim", "v-head-dim")
    q_rank, *others = (as_number(extra.get(name)) for name in names)
    if None in others:
        return None
    return Latent(int(q_rank or 0), *(int(width or 0) for width in others))


def zero(row: Row) -> int:
    """Which ZeRO stage the record uses; Megatron's distributed optimizer is stage 1."""
    text = str(row.table("parallelism").get("zero", "")).lower()
    if "fsdp" in text or "hsdp" in text or "zero-3" in text or "zero3" in text or text == "3":
        return 3
    if "zero-2" in text or text == "2":
        return 2
    return 1


STATES_BYTES = 16.0
"""Of a weight in training: bf16 or fp32 weights, gradients, optimizer."""


def shard(row: Row, shape: Architecture, hardware: Machine) -> float:
    """Ranks that ZeRO-3 splits over, at most: a number told beside it, times those of a context; a
    node's with HSDP.

    "FSDP+DP" splits over no more than half of the memory needs, and over a node at least.
    """
    text = str(row.table("parallelism").get("zero", "")).lower()
    if told := re.search(r"sdp\D{0,8}(\d{1,5})\b", text.replace("fsdp2", "fsdp")):
        return max(float(told[1]), 1.0) * (row.number("parallelism", "cp") or 1.0)
    if "hsdp" in text:
        return float(hardware.gpus_per_node)
    if "+dp" not in text:
        return math.inf
    needed = STATES_BYTES * shape.parameters / (hardware.memory_bytes / 2.0)
    return float(max(2 ** math.ceil(math.log2(needed)), hardware.gpus_per_node))


def recompute(row: Row) -> int:
    """What the record recomputes in the backward pass."""
    text = row.text("recompute")
    if "none" in text or "false" in text:
        return NO_RECOMPUTE
    if "full" in text or text in ("recompute", "offload", "checkpoint=true"):
        return FULL
    if "selective" in text or "core_attn" in text:
        named = "modules" in text
        return NO_RECOMPUTE if named and "core_attn" not in text else SELECTIVE
    untold = "ptd-p" in row.text("framework") or row.text("framework") == "zero-3"
    return FULL if untold else NO_RECOMPUTE


AMPERE_KERNEL = 350e12
"""FLOP/s that the second generation of flash attention reaches where its instructions are old."""

FIRST_GENERATION = 0.77
"""What the first generation reaches of the second: whole steps of 2023 ran 1.3 times as long."""


SECOND_GENERATION = ("torchtitan", "torchtune", "litgpt", "sdpa")
"""Frameworks that leave attention to PyTorch, which brings the second generation."""


def attention_share(row: Row, hardware: Machine) -> float:
    """Share of the device's attention rate that the record's kernel can reach.

    Composer of 2023 trains with the first generation.
    """
    second = min(AMPERE_KERNEL / hardware.attention_rate, 1.0)
    framework = row.text("framework")
    if "composer" in framework:
        return FIRST_GENERATION * second
    chosen = any(word in framework for word in SECOND_GENERATION)
    return second if chosen or row.text("attention") == "flash_attention_2" else 1.0


HOPPER = ("H100", "H200", "H800", "H20", "GH200")
"""Devices that PyTorch had a grouped matmul for."""


def launches(row: Row, hardware: Machine, latent: bool = False) -> Host:
    """How the record's framework launches layers with experts.

    Latent attention comes with routing by groups, which NeMo alone starts kernel by kernel.
    NVIDIA's containers bring tuned recipes: fused, and with routing captured where one domain of
    links joins more than a node. A framework by itself starts from eager routing.
    """
    kind, text = family(row), f"{row.text('framework')} {row.text('notes')}"
    if kind == "fsdp2" and not hardware.device.startswith(HOPPER):
        return ADAPTED if "lora" in row.text("task") else FALLBACK
    if kind == "fsdp2":
        return LOOPED
    if "cuda graphs" in text:
        return EAGER if "disabled" in text else CAPTURED
    if kind == "megatron" and latent:
        return EAGER
    if "container" not in text and kind == "bridge":
        return EAGER
    return CAPTURED if hardware.link.gpus > hardware.gpus_per_node else FUSED


def dispatcher(row: Row) -> Dispatcher:
    """How the record's framework sends tokens to experts, where it tells."""
    told = f"{row.text('dispatcher')} {row.text('notes')}"
    ways = {"hybridep": HYBRID_EP, "deepep": DEEP_EP, "a2a": ALL_TO_ALLS, "alltoall": ALL_TO_ALLS}
    found = next((way for name, way in ways.items() if name in told), USUAL)
    overlap = row.text("overlap")
    hides = "ep overlap" in overlap and not any(word in overlap for word in ("off", "no "))
    return replace(found, exposed=EXPOSED) if hides else found


@dataclass(frozen=True)
class Run:
    """A training step that a record describes."""

    shape: Architecture
    machine: Machine
    plans: Plans
    precision: str
    era: str
    gpus: float
    attention: float
    """Share of the device's attention rate that its kernel can reach."""
    host: Host
    dispatcher: Dispatcher
    gathers: float
    """Messages in which ZeRO-3 gathers a layer."""

    @property
    def tokens(self) -> float:
        """Of one optimizer step."""
        return float(self.plans.batch * self.plans.seq)


TENSORS = 12.0
"""Weights and biases of a plain layer, each of which DeepSpeed of 2021 gathered by itself."""

LORA_SHARE = 0.005
"""Trained weights of a low-rank adapter over all weights."""


def run(row: Row) -> Run:
    """The record's training step. Raises Unknown."""
    shape, hardware = architecture(row), machine(row)
    arguments = row.mapping("args")
    if arguments:
        shape = megatron.shaped(shape, arguments, int(row.number("parallelism", "tp") or 1))
    gpus, seq = _count(row, hardware), row.needed("lengths", "seq")
    stage = megatron.stage(arguments) if arguments else zero(row)
    degrees = {name: row.number("parallelism", name) for name in ("tp", "pp", "cp", "ep", "etp")}
    if degrees["tp"] is None and not row.table("parallelism").get("zero") and not arguments:
        raise Unknown("no parallelism.tp")
    if degrees["etp"] is None and (arguments or family(row) == "megatron"):
        degrees["etp"] = degrees["tp"]
    if degrees["ep"] is None:
        degrees["ep"] = _spread(row, shape, gpus / (degrees["pp"] or 1.0))
    tp, pp, cp, ep, etp = (value or 1.0 for value in degrees.values())
    _check(row, shape, gpus, tp, pp, cp)
    micro, batch = _batch(row, max(gpus / (tp * pp * cp), 1.0))
    dp = max(min(gpus / (tp * pp * cp), batch / micro), 1.0)
    plans = Plans.of(
        tp=tp,
        pp=pp,
        vpp=_chunks(row, shape, pp),
        dp=dp,
        cp=cp,
        ep=ep,
        etp=etp,
        micro=micro,
        batch=batch,
        seq=seq,
        sp=_sequence_parallel(row, tp),
        zero=stage,
        recompute=megatron.recompute(arguments) if arguments else recompute(row),
        imbalance=row.number("parallelism", "imbalance") or 1.0,
        trained=LORA_SHARE if "lora" in row.text("task") else 1.0,
        shard=shard(row, shape, hardware),
    )
    return Run(
        shape=shape,
        machine=hardware,
        plans=plans,
        precision=precision(row),
        era=era(row),
        gpus=gpus,
        attention=attention_share(row, hardware),
        host=launches(row, hardware, shape.latent is not None),
        dispatcher=dispatcher(row),
        gathers=TENSORS if family(row) == "deepspeed" else 1.0,
    )


def _check(row: Row, shape: Architecture, gpus: float, tp: float, pp: float, cp: float) -> None:
    """Raises Unknown for a layout that no such model or number of GPUs can have."""
    if shape.heads % tp:
        raise Unknown("parallelism.tp doesn't divide the heads")
    if gpus % (tp * pp * cp * (row.number("parallelism", "dp") or 1.0)):
        raise Unknown("tp·pp·cp·dp doesn't divide the number of GPUs")


def _spread(row: Row, shape: Architecture, ranks: float) -> float | None:
    """Expert parallelism where only its dispatcher is told: one that sends tokens between ranks."""
    if shape.experts is None or "deepep" not in row.text("dispatcher"):
        return None
    return min(float(shape.experts.number), ranks)


def _count(row: Row, hardware: Machine) -> float:
    """GPUs of the run, or of its nodes together; Megatron's tests take one node where nothing else
    is said.
    """
    nodes = row.number("hardware", "nodes")
    told = row.number("hardware", "count") or (nodes and nodes * hardware.gpus_per_node)
    if told is None and row.mapping("args"):
        return float(hardware.gpus_per_node)
    return told or row.needed("hardware", "count")


def _batch(row: Row, dp: float) -> tuple[float, float]:
    """Sequences of a micro-batch and of a step. Raises Unknown."""
    micro, batch = row.number("batch", "micro"), row.number("batch", "global")
    if batch is None and (tokens := row.number("batch", "global_tokens")):
        batch = tokens / row.needed("lengths", "seq")
    several = (row.number("batch", key) for key in ("grad_accum", "micro_num", "micro_batches"))
    count = next((value for value in several if value), None)
    if batch is None:
        if micro is None or count is None:
            raise Unknown("no batch.global")
        return micro, micro * count * dp
    if micro is None:
        micro = batch / (dp * count) if count else 1.0
    return max(micro, 1.0), batch


def _chunks(row: Row, shape: Architecture, pp: float) -> float:
    value = row.number("parallelism", "vpp") or megatron.chunks(row.mapping("args"), pp)
    if "layer" in str(row.table("parallelism").get("vpp", "")):
        return max(shape.layers / pp / value, 1.0)
    return value if pp > 1 else 1.0


def _sequence_parallel(row: Row, tp: float) -> float:
    told = row.table("parallelism").get("sp")
    if arguments := row.mapping("args"):
        told = megatron.given(arguments, "sequence-parallel")
    if told is None:
        return 1.0 if tp > 1 else 0.0
    return 0.0 if str(told).lower() in ("false", "0") else 1.0
