"""The stages of a step with their profiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeGuard

from xdsl.ir import Operation

from rpeg.cost.profiles.profiling import profiles
from rpeg.cost.profiles.setting import Setting
from rpeg.cost.profiles.stage import Profile
from rpeg.ir.base import RpegOp
from rpeg.ir.ops.movement import PublishOp, TransferOp, model_of, pool_of
from rpeg.ir.ops.sampling import ScoreOp
from rpeg.ir.pools import made_on, pools_at
from rpeg.ir.rsched import label_of
from rpeg.ir.stages import stage_name


@dataclass(frozen=True)
class Priced:
    """A stage, or something that moves."""

    op: Operation
    name: str
    pool: str
    """What runs it: a pool of processes, or of cores that verify; empty where any pool may."""
    profile: Profile


def priced(setting: Setting) -> list[Priced]:
    """What of a step costs something by itself, that of regions included, in the order of the
    text.
    """
    table = profiles(setting)
    return [_priced(op, p, setting) for op, p in table.items() if _is_stage(op)]


def _is_stage(op: Operation) -> TypeGuard[RpegOp]:
    return isinstance(op, PublishOp | TransferOp) or (isinstance(op, RpegOp) and op.PLACED)


def _priced(op: RpegOp, profile: Profile, setting: Setting) -> Priced:
    return Priced(op, _name(op), _pool(op, setting), profile)


def _pool(op: Operation, setting: Setting) -> str:
    if isinstance(op, ScoreOp) and (cores := setting.checkers.get(stage_name(op))):
        return cores.pool
    if isinstance(op, PublishOp):
        return made_on(op.weights) or pool_of(op) or ""
    return pool_of(op) or next(iter(pools_at(op)), "")


def _name(op: RpegOp) -> str:
    """The label that a schedule gave a task; inside of one, the stage's name."""
    label = label_of(op)
    if label is None and isinstance(op, PublishOp):
        return f"publish_{model_of(op)}_to_{pool_of(op)}"
    return label or stage_name(op)
