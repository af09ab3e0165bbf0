"""Collectives and copies between GPUs: bus bandwidth, latency, time."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from rpeg.cost.collectives import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BROADCAST,
    POINT_TO_POINT,
    REDUCE_SCATTER,
    Group,
    bus_factor,
    collective,
)
from rpeg.cost.hardware import Machine
from rpeg.cost.validation.facts import machine
from rpeg.cost.validation.rows import Row, Unknown

FIELDS = ("hardware.gpu", "hardware.count", "operation", "message_bytes")

OPERATIONS = (
    ("all_reduce", ALL_REDUCE),
    ("allreduce", ALL_REDUCE),
    ("all_gather", ALL_GATHER),
    ("allgather", ALL_GATHER),
    ("reduce_scatter", REDUCE_SCATTER),
    ("alltoall", ALL_TO_ALL),
    ("all_to_all", ALL_TO_ALL),
    ("broadcast", BROADCAST),
    ("sendrecv", POINT_TO_POINT),
)
"""What a record calls an operation, and ours."""

NOT_NCCL = ("host memory", "nvshmem", "osu", "openmpi", "mpich", "npkit", "deepep", "perftest")

LARGE = 8.0 * 2**30
"""Message of a record that gives only the plateau of a bandwidth."""


def seconds(row: Row) -> float:
    """Of the operation. Raises Unknown."""
    hardware, operation = _machine(row), _operation(row)
    ranks = row.needed("hardware", "count")
    return float(collective(hardware, operation, _size(row), Group.of(hardware, ranks)))


def quantity(row: Row, name: str, unit: str) -> float:
    """What a record calls `name`, in its unit. Raises Unknown."""
    ranks = np.asarray(row.needed("hardware", "count"))
    if ranks < 2:
        raise Unknown("a group of one")
    time, size = seconds(row), _size(row)
    rate = size / time / 1e9
    forms = {
        "time": time * 1e6,
        "latency": time * 1e6,
        "algbw": rate,
        "busbw": rate * float(bus_factor(_operation(row), ranks)),
        "busbw_inplace": rate * float(bus_factor(_operation(row), ranks)),
        "busbw_peak": rate * float(bus_factor(_operation(row), ranks)),
    }
    if name not in forms:
        raise Unknown(f"{name} isn't a time or bandwidth of a collective")
    return forms[name]


def _machine(row: Row) -> Machine:
    """The record's machine; a ring that the source asked for leaves the switch alone."""
    known = machine(row)
    asked = f"{row.text('notes')} {row.text('library')}"
    if "ring" in asked or "tree" in asked:
        return replace(known, link=replace(known.link, reduces_in_switch=False))
    return known


def _operation(row: Row) -> str:
    text = f"{row.text('operation')} {row.text('library')}"
    if other := next((word for word in NOT_NCCL if word in text), None):
        raise Unknown(f"not NCCL: {other}")
    found = next((ours for theirs, ours in OPERATIONS if theirs in text), None)
    if found is None:
        raise Unknown(f"operation {row.text('operation')}")
    return found


def _size(row: Row) -> float:
    value = row.fields.get("message_bytes")
    if value is None:
        return LARGE
    found = re.match(r"[\d.]+", str(value))
    return (float(found[0]) or LARGE) if found else LARGE
