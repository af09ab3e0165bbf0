"""The tasks of a step with their profiles: what the period is made of."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import Block, Operation

from rpeg.cost.profiles.profiling import profiles
from rpeg.cost.profiles.setting import Setting
from rpeg.cost.profiles.stage import Profile
from rpeg.ir.base import RpegOp
from rpeg.ir.declared import step_of
from rpeg.ir.ops.movement import PublishOp, TransferOp, model_of, pool_of
from rpeg.ir.ops.regions import EveryOp
from rpeg.ir.ops.sampling import GetOp, ScoreOp, StaleOp
from rpeg.ir.pools import made_on, pools_at
from rpeg.ir.rsched import label_of
from rpeg.ir.stages import stage_name
from rpeg.ir.text.naming import name_of


@dataclass(frozen=True)
class Priced:
    """A task of the step's own block, or a stage inside of one."""

    op: Operation
    name: str
    pool: str
    """What runs it: a pool of processes, or of cores that verify; empty where any pool may."""
    profile: Profile


def priced(setting: Setting) -> tuple[list[Priced], list[Priced]]:
    """(tasks, stages): tasks in the order of the text; stages are what costs something by itself,
    those of regions included.
    """
    table = profiles(setting)
    step = step_of(setting.pipeline)
    assert step is not None, "a pipeline at L1 has a step"
    tasks = [_priced(op, p, setting) for op, p in table.items() if _is_task(op, step)]
    stages = [_priced(op, p, setting) for op, p in table.items() if _is_stage(op)]
    return tasks, stages


def _is_task(op: Operation, step: Operation) -> bool:
    block = step.regions[0].block
    beside = isinstance(op, GetOp | StaleOp) or op is block.last_op
    return op.parent_block() is block and not beside


def _is_stage(op: Operation) -> bool:
    return isinstance(op, PublishOp | TransferOp) or (isinstance(op, RpegOp) and op.PLACED)


def _priced(op: Operation, profile: Profile, setting: Setting) -> Priced:
    return Priced(op, task_name(op), _pool(op, setting), profile)


def _pool(op: Operation, setting: Setting) -> str:
    if isinstance(op, ScoreOp) and (cores := setting.checkers.get(stage_name(op))):
        return cores.pool
    if isinstance(op, PublishOp):
        return made_on(op.weights) or pool_of(op) or ""
    return pool_of(op) or next(iter(pools_at(op)), "")


def task_name(op: Operation) -> str:
    """The label that a schedule gave a task; before one, what it would give."""
    if (label := label_of(op)) is not None:
        return label
    match op:
        case PublishOp():
            inside = isinstance(op.parent_block(), Block) and isinstance(op.parent_op(), EveryOp)
            return f"publish_{model_of(op)}" + (f"_to_{pool_of(op)}" if inside else "")
        case TransferOp():
            return f"{name_of(op.moved)}_to_{pool_of(op)}"
        case EveryOp():
            return f"every_{op.int_of('steps')}"
        case RpegOp() if op.PLACED:
            return stage_name(op)
        case _:
            hint = op.results[0].name_hint if op.results else None
            return hint or op.name.rpartition(".")[2]
