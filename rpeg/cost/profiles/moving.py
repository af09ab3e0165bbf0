"""Stages that move bytes: weights to engines, rows between pools, states to the host and back."""

from __future__ import annotations

import numpy as np
from xdsl.ir import SSAValue

from rpeg.cost.hardware import Machine
from rpeg.cost.profiles.layouts import Layout
from rpeg.cost.profiles.shapes import ModelShape
from rpeg.cost.profiles.stage import Profile, moved
from rpeg.cost.profiles.workload import Rows
from rpeg.cost.publish import apart_s, gathered_bytes
from rpeg.ir.types.values import ResponseFieldType, TrajectoriesType

TOKEN_BYTES, MASK_BYTES, NUMBER_BYTES = 4.0, 1.0, 4.0
"""A token's id, whether it is trained on, and a number of a field."""

BUCKET = 512.0 * 2**20
"""Bytes that a publish sends at a time unless told otherwise."""


def publish_within(model: ModelShape, trainer: Layout, engine: Layout, machine: Machine) -> Profile:
    """New weights for engines on the trainer's own processes: each gathers what it lacks."""
    whole = np.asarray(model.weight_bytes)
    parts, wanted = np.asarray(trainer.tp * trainer.pp), np.asarray(engine.tp * engine.pp)
    gathered = gathered_bytes(whole, parts, wanted)
    crosses = trainer.tp * trainer.pp > machine.link.gpus
    link = machine.nic if crosses else machine.link
    copied = model.weight_bytes / float(wanted) / machine.memory_rate
    sent = float(gathered) / link.reached
    return moved("communication", sent).with_seconds("memory", copied)


def publish_apart(
    model: ModelShape, trainer: Layout, engine: Layout, machine: Machine, mode: str
) -> Profile:
    """New weights for another pool: from every process that trains, or from one (`bcast`)."""
    senders = 1 if mode == "bcast" else trainer.processes
    copies = 1 if mode in ("bcast", "relay") else engine.dp
    seconds = apart_s(
        np.asarray(model.weight_bytes),
        np.asarray(engine.tp * engine.pp),
        np.asarray(senders),
        np.asarray(float(copies)),
        machine,
    )
    return moved("communication", float(seconds))


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
