"""Clusters by name: how many nodes, GPUs and cores there are, read from `clusters/*.toml`.

A plan names a sized cluster, `NAME-NODES`: "alps-64" is 64 nodes of Alps, 256 GPUs. A bare name, or
the path of a `.toml` file, is the whole machine. Each figure in a file is a table
`{ value, source, cite }`, where source is "datasheet", "measured" or "default".
"""

from __future__ import annotations

import difflib
import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rpeg.resources import resource

SOURCES = ("datasheet", "measured", "default")
THIS_MACHINE = "this machine"
"""The value of `cores_per_node` that is read from the machine instead of the file."""


class ClusterError(ValueError):
    """No such cluster, or a file in another form; the text says what to write."""


@dataclass(frozen=True)
class Device:
    """One GPU; memory in bytes, counted as datasheets do (1 GB = 10**9 bytes)."""

    name: str
    memory_bytes: int


@dataclass(frozen=True)
class Cluster:
    """A sized cluster: equal nodes, each with its GPUs (all of one device) and CPU cores."""

    name: str
    nodes: int
    gpus_per_node: int
    cores_per_node: int
    device: Device | None
    """The GPU; None where the nodes have none."""

    @property
    def gpus(self) -> int:
        """GPUs of the whole cluster."""
        return self.nodes * self.gpus_per_node

    @property
    def cores(self) -> int:
        """CPU cores of the whole cluster."""
        return self.nodes * self.cores_per_node


def known_clusters() -> tuple[str, ...]:
    """The names that `load_cluster` knows, without a size, in alphabetical order."""
    return tuple(sorted(path.stem for path in resource("clusters").glob("*.toml")))


def load_cluster(name: str) -> Cluster:
    """The cluster called `NAME-NODES`, `NAME` or `PATH.toml`; raises `ClusterError`."""
    if name.endswith(".toml"):
        return _read(Path(name), nodes=None)
    if name in known_clusters():
        return _read(_file(name), nodes=None)
    base, _, size = name.rpartition("-")
    if base not in known_clusters() or not size.isdecimal():
        raise ClusterError(_unknown(name))
    return _read(_file(base), nodes=int(size))


def _file(name: str) -> Path:
    return resource(f"clusters/{name}.toml")


def _unknown(name: str) -> str:
    base, dash, size = name.rpartition("-")
    stem, suffix = (base, dash + size) if size.isdecimal() else (name, "")
    known = known_clusters()
    close = difflib.get_close_matches(stem, known, n=1)
    hint = f'did you mean "{close[0]}{suffix}"? ' if close else ""
    return (
        f'no cluster "{name}": {hint}known are {", ".join(known)}; '
        'write NAME-NODES, such as "alps-64", or the path of a .toml file'
    )


def _read(path: Path, nodes: int | None) -> Cluster:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ClusterError(f"cannot read {path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise ClusterError(f"{path}: {error}") from error
    return _ClusterFile(path, table).sized(nodes)


@dataclass(frozen=True)
class _ClusterFile:
    path: Path
    table: dict[str, Any]

    def sized(self, nodes: int | None) -> Cluster:
        """The cluster of so many nodes; None is all that the machine has."""
        name, largest = self.text(self.table, "name"), self.largest()
        size = largest if nodes is None else nodes
        if size is None:
            raise ClusterError(f'"{name}" has no fixed size: write how many nodes, "{name}-8"')
        if not 1 <= size <= (largest or size):
            raise ClusterError(f"no cluster of {size} nodes: {name} has {_range(largest)}")
        gpus = self.figure(self.table, "gpus_per_node")
        full_name = name if nodes is None else f"{name}-{nodes}"
        return Cluster(full_name, size, gpus, self.cores(), self.device() if gpus else None)

    def largest(self) -> int | None:
        return self.figure(self.table, "max_nodes") if "max_nodes" in self.table else None

    def cores(self) -> int:
        entry = self.table.get("cores_per_node")
        if isinstance(entry, dict) and entry.get("value") == THIS_MACHINE:
            return _cores_here()
        return self.figure(self.table, "cores_per_node")

    def device(self) -> Device:
        table = self.table.get("device")
        if not isinstance(table, dict):
            raise self.wrong("[device]", 'name = "..." and memory_gb = { value, source, cite }')
        return Device(self.text(table, "name"), self.figure(table, "memory_gb") * 10**9)

    def text(self, table: dict[str, Any], key: str) -> str:
        value = table.get(key)
        if not isinstance(value, str):
            raise self.wrong(key, f'{key} = "..."')
        return value

    def figure(self, table: dict[str, Any], key: str) -> int:
        match table.get(key):
            case {"value": int(value), "source": source, "cite": str()} if (
                value >= 0 and source in SOURCES
            ):
                return value
        raise self.wrong(key, f'{key} = {{ value = 4, source = "datasheet", cite = "..." }}')

    def wrong(self, key: str, form: str) -> ClusterError:
        return ClusterError(f"{self.path}: {key} is missing or has another form: write {form}")


def _range(largest: int | None) -> str:
    if largest is None:
        return "1 or more nodes"
    return "1 node" if largest == 1 else f"1 to {largest} nodes"


def _cores_here() -> int:
    """Cores that this process may run on; macOS tells only how many there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
