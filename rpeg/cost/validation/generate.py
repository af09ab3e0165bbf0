"""Generation: offline throughput, static batches, latencies."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rpeg.cost.architecture import Architecture
from rpeg.cost.arrays import Array
from rpeg.cost.generation import (
    Engine,
    Requests,
    Serving,
    batch_time,
    generation_time,
    serving_memory,
)
from rpeg.cost.validation.facts import architecture, precision
from rpeg.cost.validation.machines import machine
from rpeg.cost.validation.rows import Row, Unknown

FIELDS = (
    *("hardware.gpu", "model.layers", "model.hidden", "parallelism.tp"),
    *("lengths.prompt", "lengths.response"),
)
"""And batch.global, or batch.num_requests."""

ENGINES = (
    ("nim", "nim"),
    ("tensorrt-llm", "trtllm"),
    ("vllm", "vllm"),
    ("sglang", "sglang"),
    ("megatron", "mcore"),
)


def era(row: Row) -> str:
    """Engine generation and precision."""
    text = row.text("framework")
    name = next((name for word, name in ENGINES if word in text), "other")
    if re.search(r"vllm v?0\.[0-5]\b", text):
        name = "vllm-0.5"
    return f"{name} {precision(row)}"


def engine(row: Row, sequence_s: float | Array) -> Engine:
    """The record's engine: TensorRT-LLM never evicts what it has admitted."""
    name = era(row)
    most = VLLM_SEQUENCES if name.startswith("vllm") else Engine.most_sequences
    if name.startswith("vllm-0.5"):
        sequence_s = sequence_s + SERIAL_SEQUENCE_S
    return Engine(sequence_s=sequence_s, reserves=name.startswith("trtllm"), most_sequences=most)


SERIAL_SEQUENCE_S = 200e-6
"""Of a sequence and step in vLLM before 0.6, whose server and scheduler ran in turn with the GPU:
that was busy for 38 % of the time with 8B parameters on H100 (vLLM's account of 0.6)."""

VLLM_SEQUENCES = 256.0
"""That vLLM runs at once unless told otherwise."""


def attention_dp(row: Row, shape: Architecture, tp: float) -> bool:
    """Whether each GPU attends for sequences of its own: where the record says so, and with latent
    attention beside expert parallelism, whose one cache no tensor parallelism splits.
    """
    if shape.experts is None or tp <= 1:
        return False
    told = row.table("parallelism").get("attention_dp")
    words = f"{row.text('notes')} {row.table('source').get('locator', '')}".lower()
    spread = shape.latent is not None and (row.number("parallelism", "ep") or 1.0) > 1
    return (
        bool(told) or "attention dp" in words or re.search(r"\bdep\d", words) is not None or spread
    )


@dataclass(frozen=True)
class Job:
    """What a record generates."""

    serving: Serving
    requests: Requests
    static: bool
    replicas: float
    gpus: float

    def seconds(self, engine: Engine) -> Array:
        """Of the whole job, for each constant of the engine."""
        time = batch_time if self.static else generation_time
        return time(self.serving, self.requests, engine)


def job(row: Row) -> Job:
    """Raises Unknown."""
    shape, hardware = architecture(row), machine(row)
    tp = row.needed("parallelism", "tp")
    pp = row.number("parallelism", "pp") or 1.0
    prompt = row.needed("lengths", "prompt")
    response = row.needed("lengths", "response")
    number = row.number("batch", "num_requests")
    batch = row.number("batch", "global") or row.number("batch", "concurrency")
    if number is None and batch is None:
        raise Unknown("no batch.global or batch.num_requests")
    kind = precision(row)
    narrow = "kv cache fp8" in row.text("precision") or era(row).startswith("trtllm fp")
    cache = 1.0 if narrow else 2.0
    if kind != "bf16" and kind not in hardware.flops:
        kind = "bf16"
    own = attention_dp(row, shape, tp)
    serving = Serving.of(shape, hardware, tp, pp, kind, cache, own)
    one = serving_memory(serving, Requests.of(1.0, prompt, response), Engine())
    if one.total > hardware.memory_bytes:
        raise Unknown("weights and one sequence don't fit the GPUs told")
    replicas = row.number("parallelism", "dp") or 1.0
    each = (number or batch or 1.0) / (replicas if number else 1.0)
    return Job(
        serving=serving,
        requests=Requests.of(each, prompt, response, longest=row.number("lengths", "response_max")),
        static=number is None,
        replicas=replicas if number else 1.0,
        gpus=tp * pp,
    )


RATES = ("output_tokens_per_s", "tokens_per_s", "total_tokens_per_s")

UNITS = {
    **dict.fromkeys(RATES, "tokens/s"),
    **{f"{name}_per_gpu": "tokens/s/GPU" for name in RATES},
    "request_throughput": "requests/s",
    "request_throughput_per_gpu": "requests/s/GPU",
    **dict.fromkeys(("end_to_end_latency", "first_token_latency", "time_per_output_token"), "s"),
}
"""The unit of each quantity as it is predicted."""


def quantity(row: Row, name: str, seconds: float) -> float:
    """What a record calls `name`, in `UNITS`, from the seconds of its job. Raises Unknown."""
    case = job(row)
    number = float(case.requests.number) * case.replicas
    response, prompt = float(case.requests.mean), float(case.requests.prompt)
    rates = {
        "output_tokens_per_s": number * response / seconds,
        "tokens_per_s": number * response / seconds,
        "total_tokens_per_s": number * (response + prompt) / seconds,
        "request_throughput": number / seconds,
    }
    times = {
        "end_to_end_latency": seconds,
        "first_token_latency": seconds if response == 1 else None,
        "time_per_output_token": seconds / response,
    }
    if (value := times.get(name)) is not None:
        return value
    total = name.removesuffix("_per_gpu")
    if total not in rates:
        raise Unknown(f"{name} isn't a rate or time of generation")
    return rates[total] / (case.gpus if name != total else 1.0)
