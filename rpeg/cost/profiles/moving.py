"""Stages that move bytes: weights to engines, rows between pools, states to the host and back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from xdsl.ir import SSAValue

from rpeg.cost.collectives import ALL_GATHER, BROADCAST, Group, collective
from rpeg.cost.hardware import Machine
from rpeg.cost.profiles.layouts import Layout
from rpeg.cost.profiles.shapes import ModelShape
from rpeg.cost.profiles.stage import Profile, moved
from rpeg.cost.profiles.workload import Rows
from rpeg.cost.publish import apart_s, gathered_bytes, pack_s, start_s
from rpeg.ir.ops.movement import clause_of
from rpeg.ir.ops.updates import UpdateOp
from rpeg.ir.types.values import ResponseFieldType, TrajectoriesType
from rpeg.ir.vocabulary.settings import python_value

TOKEN_BYTES, MASK_BYTES, NUMBER_BYTES = 4.0, 1.0, 4.0
"""A token's id, whether it is trained on, and a number of a field."""

BUCKET = 32.0 * 2**20
"""Bytes that a publish sends at a time unless told otherwise, as the runtime does."""


def bucket_of(update: UpdateOp) -> float:
    """Bytes of a bucket in which an update's weights are published."""
    clause = clause_of(update, "publish")
    told = python_value(clause.settings.get("bucket")) if clause is not None else None
    return float(told) if isinstance(told, int) else BUCKET


def mode_of(update: UpdateOp) -> str:
    """How an update's weights are published."""
    clause = clause_of(update, "publish")
    return str(python_value(clause.settings.get("mode"))) if clause is not None else "reshard"


def publish_within(
    model: ModelShape, trainer: Layout, engine: Layout, machine: Machine, bucket: float = BUCKET
) -> Profile:
    """New weights for engines on the trainer's own processes: each gathers what it lacks, and
    copies the whole shard.
    """
    whole = np.asarray(model.weight_bytes)
    parts, wanted = np.asarray(trainer.tp * trainer.pp), np.asarray(engine.tp * engine.pp)
    gathered = float(gathered_bytes(whole, parts, wanted))
    crosses = trainer.tp * trainer.pp > machine.link.gpus
    link = machine.nic if crosses else machine.link
    copied = model.weight_bytes / float(wanted)
    sent = moved("communication", gathered / link.reached)
    return sent.with_seconds("memory", copied / machine.memory_rate).with_seconds(
        "overhead", start_s(copied, bucket, link.latency_s if gathered else 0.0, machine)
    )


LAYER_PARAMETERS, END_PARAMETERS = 8.0, 2.0
"""Messages in which the trainer's own processes make a layer whole: among tensor-parallel ranks and
among pipeline stages one for each of Megatron-Core's parameters; and for what stands before and
behind layers. A test counts them.
"""


def tensor_messages(model: ModelShape, trainer: Layout, machine: Machine) -> Profile:
    """What those messages take besides their bytes, where each is waited for."""
    layers = model.shape.layers
    gathered = collective(machine, ALL_GATHER, 0.0, Group.of(machine, trainer.tp))
    sent = collective(machine, BROADCAST, 0.0, Group.of(machine, trainer.pp, trainer.tp))
    messages = LAYER_PARAMETERS * layers + END_PARAMETERS
    return moved("communication", float(messages * (gathered + sent)))


def publish_apart(
    model: ModelShape,
    trainer: Layout,
    engine: Layout,
    machine: Machine,
    mode: str,
    bucket: float = BUCKET,
) -> Profile:
    """New weights for another pool: from every process that trains, or from one (`bcast`)."""
    senders, copies = _senders(trainer, mode), _copies(engine, mode)
    seconds = apart_s(
        np.asarray(model.weight_bytes),
        np.asarray(engine.tp * engine.pp),
        np.asarray(senders),
        np.asarray(float(copies)),
        machine,
    )
    most = max(1.0 / (engine.tp * engine.pp), copies / senders) * model.weight_bytes
    packed = pack_s(most, bucket, machine)
    started = start_s(most, bucket, machine.nic.latency_s, machine)
    sent = moved("communication", float(seconds))
    return sent.with_seconds("memory", packed).with_seconds("overhead", started)


@dataclass(frozen=True)
class Passage:
    """Seconds that weights on their way keep parts of one process busy."""

    card: float
    memory: float
    """What passes is read or written by the card, and read and written to pack or unpack it."""

    @classmethod
    def of(cls, size: float, machine: Machine) -> Passage:
        """Of so many bytes."""
        return cls(size / machine.nic.reached, 3.0 * size / machine.memory_rate)


def received(model: ModelShape, engine: Layout, machine: Machine) -> Passage:
    """New weights at one process of an engine."""
    return Passage.of(model.weight_bytes / (engine.tp * engine.pp), machine)


def sent(
    model: ModelShape, trainer: Layout, engine: Layout, machine: Machine, mode: str
) -> Passage:
    """New weights at one process that sends them."""
    senders, copies = _senders(trainer, mode), _copies(engine, mode)
    return Passage.of(model.weight_bytes * copies / senders, machine)


def _senders(trainer: Layout, mode: str) -> int:
    return 1 if mode == "bcast" else trainer.processes


def _copies(engine: Layout, mode: str) -> int:
    """How often the weights leave the trainer."""
    return 1 if mode in ("bcast", "relay") else engine.dp


def transfer(value: SSAValue, rows: Rows, senders: int, takers: int, machine: Machine) -> Profile:
    """Rows from a pool to another: no more processes take part than the smaller has."""
    size = row_bytes(value, rows)
    seconds = size / min(senders, takers) / machine.nic.reached + machine.nic.latency_s
    return moved("communication", seconds)


def row_bytes(value: SSAValue, rows: Rows) -> float:
    """Bytes of trajectories, or of a field of them."""
    if isinstance(value.type, ResponseFieldType):
        return NUMBER_BYTES * rows.number
    responses = rows.number * rows.response.average
    if isinstance(value.type, TrajectoriesType):
        prompts = rows.number * rows.prompt.average
        return TOKEN_BYTES * prompts + (TOKEN_BYTES + MASK_BYTES) * responses
    return NUMBER_BYTES * responses


def over_host_link(moved_bytes: float, machine: Machine) -> float:
    """Seconds that one process takes to move so many bytes from or to its host."""
    return moved_bytes / machine.host_bytes_per_s
