"""What lies in the memory of a pool's busiest process, and while which stages.

A pool runs one stage at a time, so its memory over the period is, stage by stage, what stays plus
what that stage needs: residency intervals are summed exactly, not the largest of each together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from rpeg.cost.generation import ENGINE_BYTES
from rpeg.cost.profiles.layouts import bound_of, layout_of
from rpeg.cost.profiles.moving import bucket_of
from rpeg.cost.profiles.naming import title
from rpeg.cost.profiles.residency import ALWAYS, HOST, residency_of
from rpeg.cost.profiles.rows import rows_at_once, trained_rows
from rpeg.cost.profiles.sampling import USUAL_MEMORY
from rpeg.cost.profiles.setting import Setting
from rpeg.cost.profiles.states import Passing, Row, forward_pass, states, training_pass
from rpeg.cost.profiles.workload import Rows
from rpeg.ir.base import RpegOp
from rpeg.ir.ops.effects import EvalLossOp, EvalOp
from rpeg.ir.ops.movement import PublishOp, model_of, pool_of
from rpeg.ir.ops.sampling import GenerateOp, LogprobOp, ScoreOp, ValuesOp
from rpeg.ir.ops.updates import UpdateOp
from rpeg.ir.stages import stage_name

QUANTILES: Mapping[str, float] = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "cap": 1.0}
"""Lengths of responses at which memory is looked at."""

TERMS = (
    *("weights", "gradients", "optimizer", "activations", "logits", "kv"),
    *("rollout_weights", "buffers", "reserved"),
)

ROW_BYTES = 34.0
"""Of a response's token in host memory: id, mask, and a number of each field of PPO."""

MARGIN = 0.95
"""Of what others leave, an engine without a told share takes no more."""


@dataclass(frozen=True)
class Holding:
    """Bytes of one process for one reason."""

    term: str
    bytes: float
    during: frozenset[str] | None = None
    """Stages while which they are there; None: always."""

    def at(self, stages: Set[str]) -> bool:
        """Whether it is there while these stages run; without any, between stages."""
        return self.during is None or not self.during.isdisjoint(stages)


@dataclass(frozen=True)
class Footprint:
    """Everything that one process of a pool holds over a step."""

    pool: str
    holdings: tuple[Holding, ...]

    def terms(self, stages: Set[str]) -> dict[str, float]:
        """Bytes by term while these stages run; without any, between stages."""
        held = dict.fromkeys(TERMS, 0.0)
        for holding in self.holdings:
            if holding.at(stages):
                held[holding.term] += holding.bytes
        return held

    def total(self, stages: Set[str]) -> float:
        """Bytes while these stages run; without any, between stages."""
        return sum(held.bytes for held in self.holdings if held.at(stages))

    @property
    def peak(self) -> float:
        """The most that is held if stages follow one another."""
        names = {name for held in self.holdings for name in held.during or ()}
        return max(self.total(stages) for stages in (frozenset[str](), *({n} for n in names)))

    def with_more(self, *more: Holding) -> Footprint:
        """The same with other holdings as well."""
        return replace(self, holdings=(*self.holdings, *more))


def footprint(setting: Setting, pool: str, share: float) -> Footprint:
    """Of the busiest process of a pool, if responses have the length of that quantile."""
    held = _without_caches(setting, pool, share)
    for op in (op for op in _on(setting, pool) if _samples(op)):
        held = held.with_more(_cache(setting, op, held, share))
    return held


def _without_caches(setting: Setting, pool: str, share: float) -> Footprint:
    on = _on(setting, pool)
    held = Footprint(pool, (Holding("reserved", setting.machine.reserved_bytes),))
    for model in dict.fromkeys(model_of(op) for op in on if _passes(op)):
        held = held.with_more(*_states(setting, pool, model or "", on))
    for op in on:
        held = held.with_more(*_passing(op, setting, share))
    engines = [op for op in on if _samples(op)]
    for op in _firsts(engines):
        held = held.with_more(*_engine(setting, op, [o for o in engines if _alike(o, op)]))
    return held


def _on(setting: Setting, pool: str) -> list[RpegOp]:
    return [op for op in setting.stages.values() if pool_of(op) == pool]


def _passes(op: RpegOp) -> bool:
    """Whether a stage goes through a model as it is spread over the pool."""
    if isinstance(op, ScoreOp):
        return op.passes_model
    return isinstance(op, LogprobOp | ValuesOp | EvalLossOp | UpdateOp)


def _samples(op: RpegOp) -> bool:
    judges = isinstance(op, ScoreOp) and model_of(op) is not None and not op.passes_model
    return judges or isinstance(op, GenerateOp | EvalOp)


def _firsts(engines: Sequence[RpegOp]) -> list[RpegOp]:
    """One stage of each engine: stages that sample from one model share it."""
    return list({model_of(op): op for op in reversed(engines)}.values())


def _alike(one: RpegOp, other: RpegOp) -> bool:
    return model_of(one) == model_of(other)


# ---- models


def _states(setting: Setting, pool: str, name: str, on: Sequence[RpegOp]) -> Iterator[Holding]:
    """Weights, gradients and optimizer of a model that stages of the pool go through."""
    using = [op for op in on if _passes(op) and model_of(op) == name]
    updates = frozenset(stage_name(op) for op in using if isinstance(op, UpdateOp))
    model = setting.models[name]
    if not updates:
        model = replace(model, trained=0.0)
    trainer = next((op for op in using if isinstance(op, UpdateOp)), using[0])
    held, resid = states(model, layout_of(trainer)), residency_of(using[0])
    users = frozenset(stage_name(op) for op in using)
    stays = resid.params == ALWAYS
    yield Holding("weights", held.weights, None if stays else users)
    yield Holding("gradients", held.gradients, None if stays else updates)
    yield Holding("optimizer", held.optimizer, None if resid.opt == ALWAYS else updates)


def _passing(op: RpegOp, setting: Setting, share: float) -> Iterator[Holding]:
    """Activations and logits of a stage that goes through a model."""
    if not _passes(op):
        return
    held = _pass(op, setting, rows_at_once(op, setting), longest_row(op, setting, share))
    during = frozenset([stage_name(op)])
    yield Holding("activations", held.activations, during)
    yield Holding("logits", held.logits, during)


def longest_row(op: RpegOp, setting: Setting, share: float) -> Row:
    """A sequence whose prompt and response are of that quantile; other prompts are usual ones."""
    rows = rows_at_once(op, setting)
    response = rows.response.quantile(share)
    answered = response / (rows.prompt.average + response)
    return Row(rows.prompt.quantile(share) + response, answered)


def _pass(op: RpegOp, setting: Setting, rows: Rows, longest: Row) -> Passing:
    held = training_pass if isinstance(op, UpdateOp) else forward_pass
    return held(setting.model(op), layout_of(op), bound_of(op), rows, longest)


# ---- engines


def _engine(setting: Setting, op: RpegOp, using: Sequence[RpegOp]) -> Iterator[Holding]:
    """Weights of an engine, its own memory, and the bucket in which new weights come."""
    rollouts = setting.rollouts(op)
    stays = residency_of(op).params == ALWAYS
    during = None if stays else frozenset(stage_name(o) for o in using)
    sampling = frozenset(stage_name(o) for o in using)
    yield Holding("rollout_weights", rollouts.weights(setting.machine), during)
    yield Holding("reserved", ENGINE_BYTES, sampling)
    update = setting.trainer(model_of(op) or "")
    if update is not None:
        yield Holding("buffers", 2.0 * bucket_of(update), _publishes(setting, op))


def _publishes(setting: Setting, reader: RpegOp) -> frozenset[str]:
    """What brings new weights to the pool of a stage that samples."""
    found = (op for op in setting.pipeline.walk() if isinstance(op, PublishOp))
    there = (op for op in found if model_of(op) == model_of(reader))
    return frozenset(title(op) for op in there if pool_of(op) == pool_of(reader))


def _cache(setting: Setting, op: RpegOp, held: Footprint, share: float) -> Holding:
    """The cache of a stage that samples: all of the share that its line tells, or what it needs
    of what others leave.
    """
    rollouts, machine, name = setting.rollouts(op), setting.machine, stage_name(op)
    during = None if residency_of(op).kv == ALWAYS else frozenset([name])
    weights = rollouts.weights(machine) + ENGINE_BYTES
    if rollouts.memory is not None and not rollouts.embedded:
        return Holding("kv", max(rollouts.memory * machine.memory_bytes - weights, 0.0), during)
    engine = replace(setting.assumptions.sampling, utilization=_left(setting, op, held))
    rows = rows_at_once(op, setting)
    cache = rollouts.cache(rows, machine, engine, rows.response.quantile(share))
    return Holding("kv", cache, during)


def usable(setting: Setting, op: RpegOp) -> float:
    """The share of a GPU's memory that the engine of a stage has: what its line tells, or what
    others leave.
    """
    told = setting.rollouts(op).memory
    if told is not None:
        return told
    return _left(setting, op, _without_caches(setting, pool_of(op) or "", 1.0))


def _left(setting: Setting, op: RpegOp, held: Footprint) -> float:
    machine, own = setting.machine, setting.rollouts(op).weights(setting.machine) + ENGINE_BYTES
    left = MARGIN * machine.memory_bytes - (held.total({stage_name(op)}) - own)
    return max(min(left / machine.memory_bytes, USUAL_MEMORY), 0.0)


# ---- hosts


def host_footprint(setting: Setting, pool: str, share: float) -> Footprint:
    """Of the host of one node: what a plan keeps there for its GPUs, and the rows of a step. What
    has no GPUs has everything there.
    """
    per_node = min(setting.platform.processes_per_node, setting.pools[pool])
    nodes = max(setting.pools[pool] / per_node, 1.0)
    on = _on(setting, pool)
    rows = Holding("buffers", sum(_row_bytes(op, setting) for op in on) / nodes)
    if setting.platform.has_gpus:
        return Footprint(pool, (rows, *_offloaded(setting, on, per_node)))
    of_one = footprint(setting, pool, share).holdings
    each = (replace(held, bytes=per_node * held.bytes) for held in of_one)
    return Footprint(pool, (rows, *each))


def _offloaded(setting: Setting, on: Sequence[RpegOp], per_node: int) -> Iterator[Holding]:
    """Pinned memory stays a host's, whether or not a GPU has a copy of it."""
    for name in dict.fromkeys(model_of(op) for op in on if _passes(op)):
        using = [op for op in on if _passes(op) and model_of(op) == name]
        trainer = next((op for op in using if isinstance(op, UpdateOp)), using[0])
        held, resid = states(setting.models[name or ""], layout_of(trainer)), residency_of(using[0])
        if resid.comes_from_host:
            yield Holding("weights", per_node * held.weights)
        if resid.opt == HOST and isinstance(trainer, UpdateOp):
            yield Holding("optimizer", per_node * held.optimizer)


def _row_bytes(op: RpegOp, setting: Setting) -> float:
    match op:
        case GenerateOp():
            return ROW_BYTES * setting.workload.rows(op.trajectories).tokens
        case UpdateOp():
            return ROW_BYTES * trained_rows(op, setting).tokens
        case _:
            return 0.0
