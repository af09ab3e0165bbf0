"""What weights on their way between pools take from the stages that run there meanwhile.

Two that keep a part of the hardware busy for the shares f and g of their time get half of it each
while both want it, so each takes longer by f·g of the time that they run together (processor
sharing). Weights that keep a process's card busy for P seconds so take P·N / S from a stage of S
seconds whose own messages keep it busy for N of them, and likewise of its memory: decoding reads it
nearly all the time. Where several stages run meanwhile, an even part of the weights meets each.

The weights' own delay is left out, as are rows, which are few: what is told is at least.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.ir import Operation

from rpeg.cost.period.schedule import overlapping
from rpeg.cost.profiles import moving
from rpeg.cost.profiles.layouts import layout_of
from rpeg.cost.profiles.moving import Passage
from rpeg.cost.profiles.setting import Setting
from rpeg.cost.profiles.stage import Profile
from rpeg.ir.base import RpegOp
from rpeg.ir.ops.movement import PublishOp, model_of, pool_of
from rpeg.ir.ops.regions import EveryOp
from rpeg.ir.ops.sampling import GenerateOp
from rpeg.ir.ops.updates import UpdateOp
from rpeg.ir.types.values import TrajectoriesType


@dataclass(frozen=True)
class Meeting:
    """Weights that pass through a pool's processes, and the stages that run there meanwhile."""

    passage: Passage
    stages: tuple[RpegOp, ...]


def slowed(op: Operation, profile: Profile, setting: Setting) -> Profile:
    """The profile of a stage in one step, with what it loses to weights on their way."""
    if not profile.seconds:
        return profile
    met = (each for each in _meetings(setting) if op in each.stages)
    return profile.with_seconds("contention", sum(lost(profile, each) for each in met))


def lost(profile: Profile, met: Meeting) -> float:
    """Seconds of a stage; it meets the weights for no longer than it runs."""
    card, memory = (
        min(busy / len(met.stages), profile.seconds)
        for busy in (met.passage.card, met.passage.memory)
    )
    return (card * profile.card_s + memory * profile.memory_s) / profile.seconds


def _meetings(setting: Setting) -> Iterator[Meeting]:
    """Of all weights that leave for another pool."""
    for op in setting.pipeline.walk():
        update = setting.trainer(model_of(op) or "") if isinstance(op, PublishOp) else None
        if isinstance(op, PublishOp) and update is not None and pool_of(update) != pool_of(op):
            yield from _of(op, update, setting)


def _of(op: PublishOp, update: UpdateOp, setting: Setting) -> Iterator[Meeting]:
    """At the pool that samples, if it goes on with older weights; then also at the one that trains,
    if it sends them beside its other stages. Without older weights all waits for the new ones.
    """
    readers = setting.samplers(model_of(op) or "", pool_of(op))
    sampling = tuple(reader for reader in readers if _runs_ahead(reader))
    if not sampling:
        return
    model, engine = setting.model(update), setting.rollouts(readers[0]).layout
    yield Meeting(moving.received(model, engine, setting.machine), sampling)
    if overlapping(op) is not None:
        there = (o for o in setting.stages.values() if pool_of(o) == pool_of(update))
        others = tuple(o for o in there if o is not update and _each_step(o))
        mode = moving.mode_of(update)
        at = moving.sent(model, layout_of(update), engine, setting.machine, mode)
        yield Meeting(at, others)


def _runs_ahead(reader: RpegOp) -> bool:
    """Whether a stage samples in every step, and from weights that may be older."""
    held = reader.trajectories.type if isinstance(reader, GenerateOp) else None
    return isinstance(held, TrajectoriesType) and held.lag[1] > 0 and _each_step(reader)


def _each_step(op: RpegOp) -> bool:
    return not isinstance(op.parent_op(), EveryOp)
