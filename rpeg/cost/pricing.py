"""The price of a scheduled pipeline on a cluster: seconds, bytes and dollars."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from xdsl.dialects.builtin import ModuleOp

from rpeg.cost.estimate import Cost, Estimate, MemoryKind, PoolMemory, PoolUse, StageEstimate
from rpeg.cost.period.build import task_graph
from rpeg.cost.period.cards import with_shared_cards
from rpeg.cost.period.graph import TaskGraph
from rpeg.cost.period.steady import Steady, steady
from rpeg.cost.platform import Platform
from rpeg.cost.profiles.busiest import busiest
from rpeg.cost.profiles.footprint import QUANTILES, Footprint, footprint, host_footprint
from rpeg.cost.profiles.profiling import profiles
from rpeg.cost.profiles.rows import trained_rows
from rpeg.cost.profiles.setting import Inputs, Setting
from rpeg.cost.profiles.tasks import Priced, apart, priced
from rpeg.cost.profiles.timeline import Moment, moments, over_time, peak
from rpeg.ir.ops.declare import PipelineOp
from rpeg.ir.ops.updates import UpdateOp

HOUR_S = 3600.0


def estimate(
    module: ModuleOp, platform: Platform, inputs: Inputs | None = None, *, plan: str = ""
) -> Estimate:
    """What the pipeline of a module at L2 costs on a cluster.

    `plan` is what the estimate calls its placement.

    Raises:
        ShapeError: the shape of a model isn't known.
        GraphError: the module has no schedule.
        Deadlock: tasks of a step wait for each other.
    """
    pipeline = next(op for op in module.ops if isinstance(op, PipelineOp))
    setting = Setting.of(pipeline, platform, inputs or Inputs())
    return estimate_of(setting, step_graph(setting), plan)


def estimate_of(setting: Setting, graph: TaskGraph, plan: str) -> Estimate:
    """The same, once the tasks of its step are known. Raises Deadlock."""
    state = steady(graph)
    processes, has_gpus = sum(setting.pools.values()), setting.platform.has_gpus
    return Estimate(
        pipeline=setting.pipeline.title,
        plan=plan,
        cluster=setting.platform.cluster.name,
        gpus=processes if has_gpus else 0,
        cores=0 if has_gpus else processes,
        period_s=state.period_s,
        latency_s=state.latency_s,
        bounds=state.bounds,
        critical_cycle=state.critical_cycle,
        critical_distance=state.critical_distance,
        stages=tuple(_stage(stage, setting) for stage in priced(profiles(setting), setting)),
        tasks=state.spans,
        memory=tuple(_memory(setting, state)),
        pools=tuple(_uses(setting, graph, state.period_s)),
        cost=_cost(setting, processes, state.period_s),
        notes=tuple(setting.workload.assumed),
    )


def step_graph(setting: Setting) -> TaskGraph:
    """The tasks of a step, with the seconds of their profiles, and the cards that their links
    share. Raises GraphError without L2.
    """
    table = profiles(setting)
    graph = task_graph(setting.pipeline, lambda op: table[op].seconds, apart(setting))
    return with_shared_cards(graph, setting.pools)


def _stage(stage: Priced, setting: Setting) -> StageEstimate:
    """With how much of the pool's peaks it reaches."""
    profile, machine = stage.profile, setting.machine
    processes = setting.pools.get(stage.pool, 0)
    could = processes * profile.seconds
    return StageEstimate(
        stage=stage.name,
        pool=stage.pool,
        seconds=profile.seconds,
        breakdown=profile.breakdown,
        flops=profile.flops,
        bytes=profile.bytes,
        mfu=profile.flops / (could * machine.flops[machine.usual]) if could else 0.0,
        mbu=profile.bytes / (could * machine.hbm_bytes_per_s) if could else 0.0,
    )


def _uses(setting: Setting, graph: TaskGraph, period_s: float) -> list[PoolUse]:
    """Of pools of processes, and of cores that verify."""
    gpus = setting.pools if setting.platform.has_gpus else {}
    checkers = (cores.pool for cores in setting.checkers.values())
    return [
        PoolUse(name, gpus.get(name, 0), min(_busy(graph, name) / period_s, 1.0))
        for name in dict.fromkeys([*setting.pools, *checkers])
        if period_s
    ]


def _busy(graph: TaskGraph, resource: str) -> float:
    """Seconds of work of a resource in a step."""
    return sum(task.seconds for task in graph.resources.get(resource, ()))


def _cost(setting: Setting, processes: int, period_s: float) -> Cost:
    price = setting.machine.usd_per_gpu_hour * processes / HOUR_S * period_s
    tokens = _tokens(setting)
    usd = price or None
    return Cost(
        usd_per_step=usd,
        usd_per_token=usd / tokens if usd and tokens else None,
        tokens_per_s=tokens / period_s if tokens and period_s else None,
    )


def _tokens(setting: Setting) -> float:
    """Tokens of the responses that a step trains on."""
    updates = [op for op in setting.stages.values() if isinstance(op, UpdateOp)]
    rows = [trained_rows(op, setting) for op in updates]
    return max((each.number * each.response.average for each in rows), default=0.0)


# ---- memory


def _memory(setting: Setting, state: Steady) -> Iterator[PoolMemory]:
    """Of one GPU, and of one node: what its GPUs keep there, without GPUs all of its processes."""
    machine = setting.machine
    for pool in setting.pools:
        period = moments(state.spans, pool, state.period_s)
        for quantile, share in QUANTILES.items():
            if setting.platform.has_gpus:
                held = footprint(setting, pool, share)
                found = _held("gpu", quantile, held, machine.memory_bytes, period)
                yield replace(found, ranks=busiest(setting, pool, found.at_stage))
            held = host_footprint(setting, pool, share)
            yield _held("host", quantile, held, machine.host_memory_bytes, period)


def _held(
    kind: MemoryKind, quantile: str, held: Footprint, capacity: float, period: Sequence[Moment]
) -> PoolMemory:
    at = peak(held, period)
    terms = held.terms(at.stages)
    return PoolMemory(
        pool=held.pool,
        kind=kind,
        capacity_bytes=capacity,
        peak_bytes=sum(terms.values()),
        quantile=quantile,
        at_stage=at.running,
        terms=terms,
        timeline=tuple(over_time(held, period)),
    )
