"""Which stages of a pipeline vary from step to step, and by what.

Responses have the lengths that the file expects; a pass over them takes time in proportion to
their tokens, a verifier a time of its own for each. All else is as the closed form has it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from xdsl.ir import Operation, SSAValue

from rpeg.cost.arrays import Array
from rpeg.cost.generation import Engine, Requests, Serving, concurrency
from rpeg.cost.period.graph import TaskGraph
from rpeg.cost.profiles.judging import judge
from rpeg.cost.profiles.sampling import Rollouts
from rpeg.cost.profiles.setting import Setting
from rpeg.cost.profiles.workload import Rows, timeout_of
from rpeg.cost.simulation import draws
from rpeg.cost.simulation.batching import Decoding
from rpeg.cost.simulation.draws import Draws
from rpeg.ir.base import RpegOp
from rpeg.ir.ops.fuse import FuseOp
from rpeg.ir.ops.movement import pool_of
from rpeg.ir.ops.regions import EveryOp
from rpeg.ir.ops.sampling import GenerateOp, LogprobOp, ScoreOp, ValuesOp
from rpeg.ir.ops.updates import UpdateOp
from rpeg.ir.rsched import label_of
from rpeg.ir.stages import stage_name
from rpeg.ir.text.naming import trajectories_of, unmoved
from rpeg.ir.types.values import ToolType, VerifierType


def draws_of(graph: TaskGraph, setting: Setting, seed: int) -> Draws:
    """The draws of a pipeline's task graph."""
    found = {name: _stage(op, setting) for name, op in setting.stages.items()}
    found |= {label: _passing(value, setting) for label, value in _fused(setting)}
    varying = {name: each for name, each in found.items() if each is not None}
    return Draws(graph, varying, dict(_rare(setting)), seed)


def _rare(setting: Setting) -> Iterator[tuple[str, int]]:
    """Stages that do not run in every step, and in how many steps they run once."""
    for name, op in setting.stages.items():
        around = op.parent_op()
        if isinstance(around, EveryOp):
            yield name, around.int_of("steps")


def _fused(setting: Setting) -> Iterator[tuple[str, SSAValue]]:
    """Tasks that are several forward passes, and the trajectories that these go over."""
    for op in setting.pipeline.walk():
        if isinstance(op, FuseOp):
            inner = next(o for o in op.walk() if isinstance(o, LogprobOp | ValuesOp | ScoreOp))
            yield label_of(op) or "", inner.trajectories


def _stage(op: RpegOp, setting: Setting) -> draws.Stage | None:
    match op:
        case GenerateOp():
            return _sampling(op, setting)
        case ScoreOp() if isinstance(op.scorer.type, VerifierType | ToolType):
            return _answering(op, op.scorer.type.symbol, setting)
        case ScoreOp() | LogprobOp() | ValuesOp():
            return _passing(op.trajectories, setting)
        case UpdateOp() if isinstance(op.losses[0].owner, Operation):
            return _passing(op.losses[0].owner.operands[0], setting)
        case _:
            return None


def _sampling(op: GenerateOp, setting: Setting) -> draws.Sampling:
    rows, rollouts = setting.workload.rows(op.trajectories), setting.rollouts(op)
    expected = rollouts.profile(rows, setting.machine, setting.assumptions.sampling).seconds
    on = _engine(rollouts, rows, setting)
    return draws.Sampling(stage_name(op), round(rows.number), rows.response, on, expected)


def _passing(value: SSAValue, setting: Setting) -> draws.Passing | None:
    sampled, rows = _sampled(value), setting.workload.rows(value)
    if sampled is None:
        return None
    return draws.Passing(stage_name(sampled), rows.prompt.average, rows.response.average)


def _answering(op: ScoreOp, verifier: str, setting: Setting) -> draws.Answering | None:
    sampled, number = _sampled(op.trajectories), setting.workload.rows(op.trajectories).number
    if sampled is None:
        return None
    each = setting.workload.verdict(verifier, timeout_of(setting.pipeline, verifier))
    apart = setting.checkers.get(stage_name(op))
    workers = apart.number if apart is not None else setting.pools.get(pool_of(op) or "", 1)
    expected = judge(number, each, workers).seconds
    return draws.Answering(stage_name(sampled), each, workers, expected)


def _sampled(value: SSAValue) -> GenerateOp | None:
    """What samples the responses that a value is about; None where rows are read from data."""
    maker = unmoved(trajectories_of(value) or value).owner
    if not isinstance(maker, Operation):
        return None
    return next((op for op in maker.walk() if isinstance(op, GenerateOp)), None)


def _engine(rollouts: Rollouts, rows: Rows, setting: Setting) -> draws.Engine:
    serving = rollouts.serving(setting.machine)
    engine = rollouts.software(setting.assumptions.sampling)
    replicas = int(rollouts.layout.dp)
    if not rollouts.embedded:
        return draws.Continuous(
            replicas, _decoding(serving, rows.share(rows.number / replicas), engine)
        )

    def seconds(longest: Array) -> Array:
        return rollouts.chunk(rows, setting.machine, engine, longest)

    return draws.Chunks(replicas, int(rollouts.most), seconds)


def _decoding(serving: Serving, rows: Rows, engine: Engine) -> Decoding:
    """Of one replica, as many sequences at once as its cache holds."""
    prompt, response = rows.prompt.average, rows.response
    asked = Requests.of(rows.number, prompt, response.average, response.square)
    slots = int(concurrency(serving, asked, engine))
    base, more = (serving.step(np.arange(1, slots + 1), past, engine) for past in (0.0, 1.0))
    read = float(serving.prefill(rows.number * prompt, prompt) / serving.pp)
    return Decoding(
        (engine.slowdown * base).tolist(),
        engine.slowdown * float((more - base)[0]),
        engine.slowdown * read / rows.number,
        prompt,
    )
