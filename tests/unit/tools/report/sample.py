"""An estimate of PPO with a critic, made by hand: every kind of figure that a report shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from rpeg.cost.estimate import (
    Bounds,
    Cost,
    Estimate,
    PoolMemory,
    PoolUse,
    StageEstimate,
    TaskSpan,
)
from rpeg.frontend import load
from rpeg.ir.ops.declare import PipelineOp
from rpeg.passes.base import pipelines

EXAMPLES = Path(__file__).parents[4] / "examples"
GIB = 2.0**30
PERIOD = 118.25

STAGES = (  # name, pool, seconds, share of FLOP/s, share of bytes/s
    ("y", "rollout", 61.5, 0.031, 0.52),
    ("r", "cpu", 4.2, 0.0, 0.0),
    ("lp_old", "train", 7.9, 0.415, 0.11),
    ("lp_ref", "train", 8.1, 0.41, 0.112),
    ("v", "train", 8.4, 0.395, 0.10),
    ("critic", "train", 27.3, 0.382, 0.095),
    ("actor", "train", 31.1, 0.391, 0.091),
)
CHUNKS = 4
"""Micro-batches that each stage of the trainer is cut into."""


def pipeline(name: str = "ppo_critic") -> PipelineOp:
    """The pipeline of an example."""
    loaded = load((EXAMPLES / f"{name}.rpeg").read_text(encoding="utf-8"), name)
    assert loaded.module is not None
    return next(iter(pipelines(loaded.module)))


def estimate() -> Estimate:
    """Two pools of GPUs and one of cores, a step of samples ahead, one length that does not fit."""
    return Estimate(
        pipeline="ppo_critic",
        plan="two_pools",
        cluster="alps-4",
        gpus=16,
        period_s=PERIOD,
        latency_s=164.0,
        bounds=Bounds(load=82.8, cycle=118.25, head_body_tail=96.5),
        critical_cycle=("y", "r", "lp_old 1 of 4", "actor 4 of 4", "publish actor"),
        critical_distance=2,
        stages=tuple(_stages()),
        tasks=tuple(_tasks()),
        memory=tuple(_memory()),
        pools=(PoolUse("rollout", 8, 0.52), PoolUse("train", 8, 0.7), PoolUse("cpu", 0, 0.036)),
        cost=Cost(usd_per_step=1.314, usd_per_token=6.1e-6, tokens_per_s=1818.0),
        notes=("responses are 420 tokens long on average, as `expect y` says",),
    )


def _stages() -> Iterator[StageEstimate]:
    for name, pool, seconds, mfu, mbu in STAGES:
        peak = 8 * 989e12 * seconds
        parts = {"compute": 0.62, "memory": 0.17, "communication": 0.13, "overhead": 0.08}
        yield StageEstimate(
            stage=name,
            pool=pool,
            seconds=seconds,
            breakdown={cause: part * seconds for cause, part in parts.items()},
            flops=mfu * peak,
            bytes=mbu * 8 * 4e12 * seconds,
            mfu=mfu,
            mbu=mbu,
        )


def _tasks() -> Iterator[TaskSpan]:
    yield TaskSpan("y", "y", "rollout", 0.0, 61.5)
    yield TaskSpan("r", "r", "cpu", 58.0, 65.7)
    start = 65.7
    for name, pool, seconds, _, _ in STAGES:
        for chunk in range(CHUNKS if pool == "train" else 0):
            end = start + seconds / CHUNKS
            yield TaskSpan(f"{name} {chunk + 1} of {CHUNKS}", name, pool, start, end)
            start = end
    yield TaskSpan("move critic", None, None, start - 10.0, start - 4.0)
    yield TaskSpan("publish actor", None, None, start - 6.0, start + 1.9)


def _memory() -> Iterator[PoolMemory]:
    for quantile, more in (("p50", 0.0), ("p95", 6.0), ("p99", 11.0), ("cap", 25.0)):
        yield _held("train", "gpu", 96, quantile, {"weights": 15.2, "optimizer": 24.0}, more)
        yield _held("rollout", "gpu", 96, quantile, {"rollout_weights": 15.2, "kv": 52.0}, 0.0)
        yield _held("train", "host", 476.8, quantile, {"weights": 60.9, "optimizer": 210.0}, 0.0)


def _held(
    pool: str, kind: str, capacity: float, quantile: str, terms: Mapping[str, float], more: float
) -> PoolMemory:
    """Gigabytes of 2^30; `more` is what longer responses add while the actor trains."""
    held = {**terms, "activations": 21.0 + more, "gradients": 13.1, "reserved": 3.0}
    peak = sum(held.values())
    low = peak - held["activations"]
    steps = ((0.0, low - 9.0), (27.4, low), (65.7, peak), (97.2, low - 4.0))
    return PoolMemory(
        pool=pool,
        kind="gpu" if kind == "gpu" else "host",
        capacity_bytes=capacity * GIB,
        peak_bytes=peak * GIB,
        quantile=quantile,
        at_stage="actor",
        terms={name: value * GIB for name, value in held.items()},
        timeline=tuple((second, value * GIB) for second, value in steps),
    )
