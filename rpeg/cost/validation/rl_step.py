"""Steps of reinforcement learning and their phases; weight transfers."""

from __future__ import annotations

from dataclasses import dataclass

from rpeg.cost.architecture import Architecture
from rpeg.cost.arrays import Array
from rpeg.cost.generation import EAGER_LAYER, Engine, Requests, Serving
from rpeg.cost.hardware import Machine
from rpeg.cost.layers import EAGER
from rpeg.cost.lengths import Lengths
from rpeg.cost.plans import FULL, NO_RECOMPUTE, Plans
from rpeg.cost.publish import from_host_s, weight_bytes
from rpeg.cost.rl import Learning, RlStep, Rollout, rl_step
from rpeg.cost.training import Software
from rpeg.cost.validation.facts import architecture, precision, zero
from rpeg.cost.validation.machines import machine
from rpeg.cost.validation.rows import Row, Unknown, as_number

FIELDS = (
    *("hardware.gpu", "hardware.count", "model.layers", "model.hidden"),
    *("batch.global", "batch.generation_samples", "lengths.average_total"),
)
"""Instead of all samples, those of a prompt may be told; instead of the average of prompt and
response together, that of the response."""

PROMPT = 150.0
"""Tokens of a prompt where a source tells none: mathematics data sets have 80 to 200."""

TRANSFERS = ("update_broadcast", "update_p2p")
PHASES = {
    "gen": "generate",
    "generate_sequences": "generate",
    "old_log_prob": "forward",
    "ref": "forward",
    "values": "forward",
    "forward_logprobs": "forward",
    "update_actor": "update",
    "update_critic": "update",
    "refit": "publish",
    "step_time": "total",
    "tokens_per_s_per_gpu": "total",
}
"""What a record calls a phase, and ours."""


UNITS = {
    **dict.fromkeys((*TRANSFERS, *PHASES), "s"),
    "tokens_per_s_per_gpu": "tokens/s/GPU",
}
"""The unit of each quantity as it is predicted."""


@dataclass(frozen=True)
class Job:
    """One step that a record describes."""

    rollout: Rollout
    learning: Learning
    apart: bool
    tokens: float
    gpus: float

    def seconds(self, engine: Engine, software: Software) -> RlStep:
        """The step and its phases."""
        return rl_step(self.rollout, self.learning, engine, software, self.apart)


def quantity(row: Row, name: str, engine: Engine, software: Software) -> float:
    """What a record calls `name`, in `UNITS`. Raises Unknown."""
    if name in TRANSFERS:
        return _transfer(row)
    if name == "weight_sync":
        raise Unknown("how weights are gathered and renamed isn't told")
    if name not in PHASES:
        raise Unknown(f"{name} isn't a phase that is modelled")
    case = job(row)
    seconds = float(getattr(case.seconds(engine, software), PHASES[name]))
    if name == "tokens_per_s_per_gpu":
        return case.tokens / seconds / case.gpus
    return seconds


SEQUENCE_S = 20e-6
"""Host time a step and sequence of vLLM, whose scheduler and sampler run in Python."""

SHARED_UTILIZATION = 0.6
"""Of a GPU's memory, where the trainer keeps some of it."""


def engine(row: Row, step_s: float | Array, slowdown: float = 1.0) -> Engine:
    """The rollout engine: its share of memory is what the recipe says."""
    recipe = row.mapping("recipe_values")
    shared = SHARED_UTILIZATION if "colocated" in row.text("placement") else 0.9
    told = as_number(recipe.get("vllm_gpu_memory_utilization"))
    return Engine(
        slowdown=slowdown,
        sequence_s=SEQUENCE_S,
        step_s=step_s,
        utilization=min(told or shared, 1.0),
        most_sequences=1024.0,
        drafted=as_number(recipe.get("speculative_tokens")) or 0.0,
        layer_launches=EAGER_LAYER if "verl" in row.text("framework") else 0.0,
    )


def software(slowdown: float = 1.0) -> Software:
    """The trainer: lengths change with every batch, so routing of experts isn't captured."""
    return Software(slowdown, host=EAGER)


def _transfer(row: Row) -> float:
    shape = architecture(row)
    width = 1.0 if precision(row) == "fp8" else 2.0
    return from_host_s(weight_bytes(shape, width), machine(row))


def job(row: Row) -> Job:
    """Raises Unknown."""
    shape, hardware = architecture(row), machine(row)
    gpus = row.needed("hardware", "count")
    recipe = row.mapping("recipe_values")
    apart = "disaggregated" in row.text("placement")
    prompt, response = _lengths(row)
    samples = _samples(row)
    told = row.number("hardware", "generation_count")
    serving_gpus = (told or gpus / 2.0) if apart else gpus
    tp = row.number("parallelism", "gen_tp") or 1.0
    pp = row.number("parallelism", "gen_pp") or 1.0
    cap = row.number("lengths", "max_response") or row.number("lengths", "seq") or 8 * response
    spread = Lengths(response, max(cap, response * 1.01))
    longest = row.number("lengths", "response_max") or spread.longest(samples)
    rollout = Rollout(
        serving=Serving.of(shape, hardware, tp, pp, precision(row)),
        requests=Requests.of(samples, prompt, response, spread.square, longest),
        replicas=max(serving_gpus / (tp * pp), 1.0),
        ahead=max(as_number(row.fields.get("staleness")) or 1.0, 1.0),
    )
    trained_on = gpus - serving_gpus if apart else gpus
    padded = recipe.get("sequence_packing") is False
    length = prompt + (longest if padded else response)
    learning = _learning(row, shape, hardware, trained_on, samples, length, recipe)
    return Job(rollout, learning, apart, samples * (prompt + response), gpus)


def _lengths(row: Row) -> tuple[float, float]:
    """Tokens of prompt and response, on average."""
    prompt, response = row.number("lengths", "prompt"), row.number("lengths", "response")
    if response:
        return prompt or PROMPT, response
    total = row.needed("lengths", "average_total")
    return min(PROMPT, total / 4.0), total - min(PROMPT, total / 4.0)


def _samples(row: Row) -> float:
    """Samples of one step."""
    told = row.number("batch", "generation_samples")
    if told:
        return told
    each = row.number("batch", "samples_per_prompt")
    if each is None:
        raise Unknown("no batch.samples_per_prompt")
    return row.needed("batch", "global") * each


def _learning(
    row: Row,
    shape: Architecture,
    hardware: Machine,
    gpus: float,
    samples: float,
    length: float,
    recipe: dict[str, object],
) -> Learning:
    """The trainer. Packed sequences fill a micro-batch up to the longest length."""
    degrees = {key: row.number("parallelism", key) or 1.0 for key in ("tp", "pp", "cp", "ep")}
    dp = max(gpus / (degrees["tp"] * degrees["pp"] * degrees["cp"]), 1.0)
    mini = row.number("batch", "ppo_mini_batch")
    each = row.number("batch", "samples_per_prompt") or 1.0
    batch = mini * each if mini else min(row.needed("batch", "global"), samples)
    micro = row.number("batch", "micro") or 1.0
    if recipe.get("sequence_packing"):
        micro = max((row.number("lengths", "seq") or length) / length, 1.0)
    checkpointed = bool(recipe.get("activation_checkpointing", True))
    plans = Plans.of(
        **degrees,
        dp=dp,
        batch=batch,
        micro=min(micro, max(batch / dp, 1.0)),
        seq=length,
        sp=1.0 if degrees["tp"] > 1 else 0.0,
        zero=zero(row),
        recompute=FULL if checkpointed else NO_RECOMPUTE,
    )
    critic = "ppo" in row.text("algorithm")
    passes, models = (3.0, 2.0) if critic else (2.0, 1.0)
    if recipe.get("force_on_policy_ratio"):
        passes -= 1.0
    return Learning(shape, hardware, plans, samples / batch, passes, models, precision(row))
