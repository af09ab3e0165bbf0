"""Collectives and copies between GPUs: bus bandwidth, latency, time."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from rpeg.cost.arrays import Array
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
    proxied_all_to_all,
    stream,
)
from rpeg.cost.hardware import Machine
from rpeg.cost.validation.machines import machine
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
    ("point-to-point", POINT_TO_POINT),
)
"""What a record calls an operation, and ours."""

OTHER_LIBRARIES = ("host memory", "npkit", "ib_write", "nvbandwidth", "disabled")
"""Words of records that tell of something else, or of a network that wasn't in use."""

LARGE = 8.0 * 2**30
"""Message of a record that gives only the plateau of a bandwidth."""


def seconds(row: Row) -> float:
    """Of the operation. Raises Unknown."""
    hardware, text = _machine(row), _words(row)
    if other := next((word for word in OTHER_LIBRARIES if word in text), None):
        raise Unknown(f"not a collective of NCCL, MPI or NVSHMEM: {other}")
    if "point-to-point" in text:
        return float(stream(hardware, _size(row), _through_card(row, text), "mpich" in text))
    group = Group.of(hardware, row.needed("hardware", "count"))
    if "nvshmem" in text:
        return float(proxied_all_to_all(hardware, _size(row), group, "scope thread" in text))
    return float(collective(hardware, _operation(row), _size(row), group))


def _words(row: Row) -> str:
    return " ".join(row.text(name) for name in ("operation", "library", "notes"))


def _through_card(row: Row, text: str) -> bool:
    """Whether messages leave a GPU through its card: between nodes, or where the source says so."""
    nodes = row.number("hardware", "nodes") or (1.0 if "1 node(s)" in text else 2.0)
    return nodes > 1 or "over the nic" in text


RATES = ("bandwidth", "algbw", "busbw", "busbw_inplace", "busbw_peak", "bottleneck_bw")

UNITS = {**dict.fromkeys(RATES, "GB/s"), **dict.fromkeys(("time", "latency"), "us")}
"""The unit of each quantity as it is predicted."""


def quantity(row: Row, name: str) -> float:
    """What a record calls `name`, in `UNITS`. Raises Unknown."""
    ranks = np.asarray(row.needed("hardware", "count"))
    if ranks < 2:
        raise Unknown("a group of one")
    if "deepep" in _words(row):
        return _dispatched(row, name, ranks)
    time, size = seconds(row), _size(row)
    if not time > 0:
        raise Unknown("no bytes cross a link between so many ranks")
    rate = size / time / 1e9
    forms = {
        "bandwidth": rate,
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


def _dispatched(row: Row, name: str, ranks: Array) -> float:
    """GB/s of the slowest link that experts' tokens cross. Raises Unknown."""
    if name not in ("bottleneck_bw", "algbw"):
        raise Unknown("tokens of a dispatch are told in words only")
    known = machine(row)
    far = Group.of(known, ranks).outside > 1
    return (known.nic if far else known.link).reached / 1e9


def _machine(row: Row) -> Machine:
    """The record's machine; a ring that the source asked for leaves the switch alone."""
    known = machine(row)
    asked = _words(row)
    if "ring" in asked or "tree" in asked:
        return replace(known, link=replace(known.link, reduces_in_switch=0.0))
    return known


def _operation(row: Row) -> str:
    text = row.text("operation")
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
