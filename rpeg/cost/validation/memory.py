"""Peak memory of training, as an allocator or a driver reports it."""

from __future__ import annotations

import numpy as np

from rpeg.cost.memory import Keeping, Memory, last_rank, training_memory
from rpeg.cost.validation import megatron
from rpeg.cost.validation.facts import Run, family, precision, run
from rpeg.cost.validation.rows import Row, Unknown

FIELDS = (
    *("hardware.gpu", "hardware.count", "model.layers", "model.hidden", "parallelism.tp"),
    *("batch.global", "batch.micro", "lengths.seq"),
)

PEAKS = ("peak_allocated", "peak_memory", "peak_memory_usage", "gpu_memory", "real_total")
BETWEEN_STEPS = (
    *("allocated_after_step", "memory_allocated", "real_model_states", "params_and_optimizer"),
)
ACTIVATIONS = ("activations", "real_activations")

UNITS = dict.fromkeys((*PEAKS, *BETWEEN_STEPS, *ACTIVATIONS, "peak_reserved"), "bytes")
"""The unit of each quantity as it is predicted; what an allocator reserved is not."""

WHOLE_LOGIT, CHUNKED_LOGIT = 16.0, 4.0
"""Bytes of a logit in an eager loss: bf16, fp32, softmax, and the gradients of the first two; in
one by chunks, what the log probabilities come from."""

COMPILED_LOGIT = 12.0
"""The same where the loss is compiled into one kernel: bf16, fp32, and the gradients of both."""

EVERY_SECOND_PRODUCT = 0.37
"""Of a layer's activations that torchtitan keeps by default: what every second product and
attention write. Of Llama 3 8B 59 of 158 kB a token."""

CHUNK = 1024
"""Tokens of a chunk."""

EAGER_ROUTED = 10.0
"""Bytes of a routed token where scores are multiplied in fp32, outside of the experts' kernel."""

NARROW_MOMENTS = ("deepseek", "moonlight", "kimi")
"""Models whose recipes keep Adam's moments in bf16 (DeepSeek-V3, arXiv 2412.19437, section 3.3)."""


def quantity(row: Row, name: str) -> float:
    """Bytes of what a record calls `name`. Raises Unknown."""
    case = run(row)
    memory = _memory(row, case)
    if name in PEAKS:
        outside = case.machine.reserved_bytes if name == "gpu_memory" else 0.0
        return float(memory.total) + outside
    if name in BETWEEN_STEPS:
        return float(memory.states)
    if name in ACTIVATIONS:
        return float(memory.activations)
    raise Unknown(f"{name} isn't a memory of training")


def _memory(row: Row, case: Run) -> Memory:
    """Of the rank that the source looked at: Megatron logs its last one."""
    arguments = row.mapping("args")
    if arguments:
        _refuse(row, arguments)
        return last_rank(case.shape, case.plans, megatron.keeping(arguments))
    return training_memory(case.shape, case.plans, _keeping(row))


def _refuse(row: Row, arguments: megatron.Arguments) -> None:
    """Raises Unknown for runs that hold more, or less, than one decoder in training."""
    if megatron.given(arguments, "perform-rl-step"):
        raise Unknown("a rollout engine lies in the same memory, its share untold")
    if "offload" in str(row.table("source").get("url")):
        raise Unknown("activations wait in the host's memory, which of them untold")
    if any(word in str(row.table("model").get("name")) for word in ("mimo", "multimodal")):
        raise Unknown("encoders of images aren't modelled")


def _keeping(row: Row) -> Keeping:
    """By generation: gradients in bf16; losses in chunks, but for supervised training; fp16 of 2022
    kept scores and masks.
    """
    kind = family(row)
    if row.fields.get("execution"):
        return Keeping(gradient=2.0, fused_attention=False, dropout=True)
    if kind in ("fsdp2", "torchtitan"):
        return _of_pytorch(row)
    narrow = 1.0 if precision(row) == "fp8" else 2.0
    gradient = 2.0 if kind in ("megatron", "bridge") else 4.0
    name = str(row.table("model").get("name")).lower()
    moments = kind == "bridge" and any(word in name for word in NARROW_MOMENTS)
    return Keeping(gradient=gradient, matmul_input=narrow, optimizer=8.0 if moments else 12.0)


def _of_pytorch(row: Row) -> Keeping:
    """Frameworks on PyTorch's FSDP2: no fp32 copy beside fp32 weights."""
    framework = row.text("framework")
    if "torchtune" in framework:
        return Keeping(gradient=2.0, optimizer=4.0, logit=CHUNKED_LOGIT, chunk=CHUNK)
    if "torchtitan" in framework:
        return Keeping(
            weight=4.0,
            optimizer=8.0,
            logit=COMPILED_LOGIT,
            selected=EVERY_SECOND_PRODUCT,
            whole_in_pipeline=True,
        )
    whole = "sft" in row.text("task")
    return Keeping(
        weight=4.0,
        optimizer=8.0,
        logit=WHOLE_LOGIT if whole else CHUNKED_LOGIT,
        chunk=np.inf if whole else CHUNK,
        routed=EAGER_ROUTED,
        offloaded="offload" in row.text("recompute"),
    )
