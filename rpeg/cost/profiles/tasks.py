"""The stages and movements of a step with their profiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from xdsl.ir import Operation

from rpeg.cost.profiles.naming import title
from rpeg.cost.profiles.setting import Setting
from rpeg.cost.profiles.stage import Profile
from rpeg.ir.base import RpegOp
from rpeg.ir.ops.movement import PublishOp, TransferOp, pool_of
from rpeg.ir.ops.sampling import BatchOp, ScoreOp
from rpeg.ir.pools import made_on, pools_at
from rpeg.ir.rsched import label_of
from rpeg.ir.stages import stage_name


@dataclass(frozen=True)
class Priced:
    """What costs something by itself: a stage, a movement, or a batch, with the step's books."""

    name: str
    pool: str
    """What runs it: a pool of processes, or of cores that verify."""
    profile: Profile


def priced(table: Mapping[Operation, Profile], setting: Setting) -> Iterator[Priced]:
    """Those of a table of profiles that take time, in the order of the text."""
    for op, profile in table.items():
        moves = isinstance(op, PublishOp | TransferOp | BatchOp)
        if profile.seconds and (moves or (isinstance(op, RpegOp) and op.PLACED)):
            yield Priced(title(op), _pool(op, setting), profile)


def apart(setting: Setting) -> dict[str, str]:
    """The pools of cores that run tasks beside the processes' own, by label."""
    labels = {stage_name(op): label_of(op) for op in setting.stages.values()}
    pools = {labels.get(name): cores.pool for name, cores in setting.checkers.items()}
    return {label: pool for label, pool in pools.items() if label is not None}


def _pool(op: Operation, setting: Setting) -> str:
    if isinstance(op, ScoreOp) and (cores := setting.checkers.get(stage_name(op))):
        return cores.pool
    if isinstance(op, PublishOp):
        return made_on(op.weights) or pool_of(op) or ""
    return pool_of(op) or next(iter(pools_at(op)), "")
