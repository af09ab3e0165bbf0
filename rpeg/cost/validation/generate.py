"""Generation: offline throughput, static batches, latencies."""

from __future__ import annotations

from dataclasses import dataclass

from rpeg.cost.arrays import Array
from rpeg.cost.generation import (
    Engine,
    Requests,
    Serving,
    batch_time,
    generation_time,
    serving_memory,
)
from rpeg.cost.validation.facts import architecture, machine, precision
from rpeg.cost.validation.rows import Row, Unknown

FIELDS = (
    *("hardware.gpu", "model.layers", "model.hidden", "parallelism.tp"),
    *("lengths.prompt", "lengths.response"),
)
"""And batch.global, or batch.num_requests."""

ENGINES = (
    ("tensorrt-llm", "trtllm"),
    ("vllm", "vllm"),
    ("sglang", "sglang"),
    ("megatron", "mcore"),
)


def era(row: Row) -> str:
    """Engine generation and precision."""
    text = row.text("framework")
    name = next((name for word, name in ENGINES if word in text), "other")
    return f"{name} {precision(row)}"


def engine(row: Row, sequence_s: float | Array) -> Engine:
    """The record's engine: TensorRT-LLM never evicts what it has admitted."""
    return Engine(sequence_s=sequence_s, reserves=era(row).startswith("trtllm"))


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
    batch = row.number("batch", "global")
    if number is None and batch is None:
        raise Unknown("no batch.global or batch.num_requests")
    kind = precision(row)
    narrow = "kv cache fp8" in row.text("precision") or era(row).startswith("trtllm fp")
    cache = 1.0 if narrow else 2.0
    if kind != "bf16" and kind not in hardware.flops:
        kind = "bf16"
    serving = Serving.of(shape, hardware, tp, pp, kind, cache)
    one = serving_memory(serving, Requests.of(1.0, prompt, response), Engine())
    if one.total > hardware.memory_bytes:
        raise Unknown("weights and one sequence don't fit the GPUs told")
    replicas = row.number("parallelism", "dp") or 1.0
    each = (number or batch or 1.0) / (replicas if number else 1.0)
    return Job(
        serving=serving,
        requests=Requests.of(each, prompt, response),
        static=number is None,
        replicas=replicas if number else 1.0,
        gpus=tp * pp,
    )


def quantity(row: Row, name: str, unit: str, seconds: float) -> float:
    """What a record calls `name`, in its unit, from the seconds of its job. Raises Unknown."""
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
        "avg_latency_ms": seconds,
        "p50_latency_ms": seconds,
        "first_token_latency": seconds if response == 1 else None,
        "time_per_output_token": seconds / response,
    }
    if (value := times.get(name)) is not None:
        return value * 1000.0 if unit.startswith("ms") else value
    total = name.removesuffix("_per_gpu")
    if total not in rates:
        raise Unknown(f"{name} isn't a rate or time of generation")
    return rates[total] / (case.gpus if name != total else 1.0)
