"""Training steps: time in whatever form a source gives it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from rpeg.cost.arrays import Array
from rpeg.cost.layers import Pricing
from rpeg.cost.plans import Plans
from rpeg.cost.training import Software, step_time
from rpeg.cost.validation.facts import (
    Run,
    architecture,
    dispatcher,
    family,
    precision,
    run,
)
from rpeg.cost.validation.machines import machine
from rpeg.cost.validation.rows import Row, Unknown

FIELDS = (
    *("hardware.gpu", "hardware.count", "model.layers", "model.hidden", "parallelism.tp"),
    *("batch.global", "batch.micro", "lengths.seq"),
)
"""Without these a step isn't predicted; the layout may be a stage of ZeRO instead of tp."""

TRILLION = 1e12

UNITS = {
    **dict.fromkeys(("step_time", "forward", "backward"), "s"),
    "tokens_per_s": "tokens/s",
    "tokens_per_s_per_gpu": "tokens/s/GPU",
    "samples_per_s": "samples/s",
    **dict.fromkeys(("model_tflops_per_gpu", "hw_tflops_per_gpu"), "TFLOP/s"),
    "days_300B_tokens": "days",
    **dict.fromkeys(("mfu", "hfu"), "fraction"),
}
"""The unit of each quantity as it is predicted."""

CAUSAL = ("bridge", "fsdp2", "torchtitan", "automodel")
"""Generations that count attention as causal in what they call model FLOPs; others count all."""


def seconds(row: Row, software: Software) -> Array:
    """Of one optimizer step, for each attention share of the software. Raises Unknown."""
    case = run(row)
    reached = replace(
        software,
        attention=software.attention * case.attention,
        host=case.host,
        dispatcher=case.dispatcher,
        gathers=case.gathers,
    )
    return step_time(case.shape, case.machine, case.plans, case.precision, reached).total


PASSES = ("forward", "backward")


def one_layer(row: Row, name: str) -> float:
    """Seconds of a pass of a mixture layer alone, without attention. Raises Unknown.

    No slowdown: that is of whole steps, warm GPUs and all.
    """
    shape, hardware = architecture(row), machine(row)
    if shape.layers != 1 or shape.experts is None:
        raise Unknown("a pass of a whole model")
    tp, ep = (row.number("parallelism", key) or 1.0 for key in ("tp", "ep"))
    etp = row.number("parallelism", "etp") or 1.0
    micro, seq = row.number("batch", "micro") or 1.0, row.needed("lengths", "seq")
    plans = Plans.of(batch=micro, seq=seq, micro=micro, tp=tp, ep=ep, etp=etp)
    narrow = precision(row)
    pricing = Pricing(shape, hardware, narrow, plans, dispatcher=dispatcher(row))
    work = pricing.routed()
    if shape.experts.shared_ffn:
        work += pricing.mlp(shape.experts.shared_ffn)
    back = work.data_gradient + work.weight_gradient
    return float((work.forward + _cast(pricing) if name == "forward" else back) + work.expert)


CAST_BYTES = 4.0
"""Read and written to cast a weight, row- and column-wise; a whole step does so but once."""


def _cast(pricing: Pricing) -> Array:
    """Of a layer's weights, where matmuls take narrower ones."""
    if pricing.precision == "bf16":
        return np.zeros(())
    shape, plans = pricing.shape, pricing.plans
    weights = shape.shared_weights / plans.tp + shape.routed_parameters / (plans.ep * plans.etp)
    return np.asarray(CAST_BYTES * weights / pricing.machine.memory_rate)


def model_flops(case: Run, causal: bool) -> float:
    """Of a step, as reports of utilisation count them: forward and backward, no recomputation."""
    squares = case.tokens * float(case.plans.seq) * (1 if causal else 2)
    return 3.0 * case.shape.forward_flops(case.tokens, squares)


def quantity(row: Row, name: str, step: float) -> float:
    """What a record calls `name`, in `UNITS`, from the seconds of a step. Raises Unknown."""
    case = run(row)
    rate = case.tokens / step
    flops = model_flops(case, family(row) in CAUSAL) / step / case.gpus
    peak = case.machine.flops.get(case.precision, case.machine.flops["bf16"])
    repeated = 4.0 / 3.0 if case.plans.recompute == 2 else 1.0
    forms: dict[str, Callable[[], float]] = {
        "step_time": lambda: step,
        "tokens_per_s": lambda: rate,
        "tokens_per_s_per_gpu": lambda: rate / case.gpus,
        "samples_per_s": lambda: float(case.plans.batch) / step,
        "model_tflops_per_gpu": lambda: flops / TRILLION,
        "hw_tflops_per_gpu": lambda: flops * repeated / TRILLION,
        "days_300B_tokens": lambda: 300e9 / rate / 86400,
        "mfu": lambda: flops / peak,
        "hfu": lambda: flops * repeated / peak,
    }
    if name not in forms:
        raise Unknown(f"{name} isn't a time of a step")
    return forms[name]()
