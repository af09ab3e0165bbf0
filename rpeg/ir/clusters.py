"""Clusters by name: how many nodes, GPUs and cores there are, read from `clusters/*.toml`.

A plan names a sized cluster, `NAME-NODES`: "alps-64" is 64 nodes of Alps, 256 GPUs. A bare name, or
the path of a `.toml` file, is the whole machine. Each figure in a file is a table
`{ value, source, cite }`, where source is "datasheet", "measured" or "default".
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rpeg.ir.figures import AT_LEAST_0, SIZE, TOP, FigureError, Figures, up_to, written
from rpeg.ir.near import near
from rpeg.resources import resource

THIS_MACHINE = "this machine"
"""The value of `cores_per_node` that is read from the machine instead of the file."""

GPU_RATES = ("bf16_tflops", "fp8_tflops", "fp4_tflops")
"""Keys of a device that is a GPU; cores compute in fp32."""

KEYS = {
    TOP: ("name", "max_nodes", "gpus_per_node", "cores_per_node", "usd_per_gpu_hour"),
    "device": (
        *("name", "memory_gb", "hbm_gb_per_s", "host_gb_per_s"),
        *(*GPU_RATES, "fp32_tflops"),
    ),
    "gpu_link": ("gb_per_s", "gpus", "latency_us", "reduces_in_switch"),
    "nic": ("gb_per_s", "latency_us", "reduces_in_switch"),
    "rack": ("nodes", "oversubscription"),
    "host": ("memory_gb", "launch_us", "product_us", "attend_us"),
    "constants": (
        *("gemm_efficiency", "gemm_efficiency_fp8", "attention_efficiency", "hbm_efficiency"),
        *("kernel_us", "gpu_link_efficiency", "nic_efficiency", "reserved_gb"),
    ),
}
"""What a cluster file may say, by section; docs/cost-model.md tells what each is and its unit."""


MOST_NODES = 100_000
MOST_PER_NODE = 4096
"""The most nodes that a cluster may have, and the most GPUs or cores of a node."""

MEMORIES = {"device": up_to(100_000, SIZE), "host": up_to(1_000_000, SIZE)}
"""GB of 2**30 bytes that a device, or a node's host, may have: many times what any has."""


class ClusterError(ValueError):
    """No such cluster, or a file in another form; the text says what to write."""


@dataclass(frozen=True)
class Device:
    """One GPU; memory in bytes: as it is sold, 1 GB of it is 2**30."""

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


def is_sized(name: str) -> bool:
    """Whether a cluster's name tells how many nodes are meant: `alps-64`, a file, or the only one.

    A name that isn't known tells too; `load_cluster` refuses it.
    """
    return name not in known_clusters() or _largest(name) == 1


def growing(name: str) -> Iterator[str]:
    """Sizes to try where the name gives none: NAME-1, NAME-2, NAME-4, up to the nodes there are."""
    nodes = 1
    while nodes <= (_largest(name) or MOST_NODES):
        yield f"{name}-{nodes}"
        nodes *= 2


def _largest(name: str) -> int | None:
    return _most_nodes(Figures.read(_file(name), KEYS))


def _most_nodes(file: Figures) -> int | None:
    """All that there are; None where a file doesn't say."""
    known = "max_nodes" in file.section(TOP)
    return file.whole(TOP, "max_nodes", up_to(MOST_NODES)) if known else None


def _file(name: str) -> Path:
    return resource(f"clusters/{name}.toml")


def _unknown(name: str) -> str:
    base, dash, size = name.rpartition("-")
    stem, suffix = (base, dash + size) if size.isdecimal() else (name, "")
    known = known_clusters()
    close = near(stem, known)
    hint = f'did you mean "{close[0]}{suffix}"? ' if close else ""
    return (
        f'no cluster "{name}": {hint}known are {", ".join(known)}; '
        'write NAME-NODES, such as "alps-64", or the path of a .toml file'
    )


def _read(path: Path, nodes: int | None) -> Cluster:
    try:
        return _sized(Figures.read(path, KEYS), nodes)
    except FigureError as error:
        raise ClusterError(str(error)) from error


def _sized(file: Figures, nodes: int | None) -> Cluster:
    """The cluster with this many nodes; None means all that the machine has."""
    name = file.words(TOP, "name")
    largest = _most_nodes(file)
    size = largest if nodes is None else nodes
    if size is None:
        raise _unsized(file, name)
    if not 1 <= size <= (largest or MOST_NODES):
        raise ClusterError(f"no cluster of {size} nodes: {name} has {_range(largest)}")
    _check_memories(file)
    gpus = gpus_of(file)
    full_name = name if nodes is None else f"{name}-{nodes}"
    return Cluster(full_name, size, gpus, _cores(file), _device(file) if gpus else None)


def _unsized(file: Figures, name: str) -> ValueError:
    """The error for a cluster without a size: a shipped machine's name gives it, another file
    itself.
    """
    if name in known_clusters() and file.path == _file(name):
        return ClusterError(f'"{name}" has no fixed size: write how many nodes, "{name}-8"')
    form = f"max_nodes = {written(8)}"
    return file.at(TOP, "max_nodes", f"nothing tells how many nodes there are: write {form}")


def _check_memories(file: Figures) -> None:
    """Checks the memory sizes that are given against their range, even where nothing is priced.
    Raises FigureError.
    """
    for section, within in MEMORIES.items():
        if "memory_gb" in file.section(section):
            file.number(section, "memory_gb", within)


def gpus_of(file: Figures) -> int:
    """GPUs per node; 0 for nodes that compute on their cores."""
    number = file.whole(TOP, "gpus_per_node", up_to(MOST_PER_NODE, AT_LEAST_0))
    fast = [key for key in file.section("device") if key in GPU_RATES]
    if not number and fast:
        text = f"gpus_per_node is 0 and [device] has {fast[0]}, which a GPU has: write how many"
        raise file.at(TOP, "gpus_per_node", text)
    return number


def _cores(file: Figures) -> int:
    entry = file.section(TOP).get("cores_per_node")
    if isinstance(entry, dict) and entry.get("value") == THIS_MACHINE:
        return cores_here()
    return file.whole(TOP, "cores_per_node", up_to(MOST_PER_NODE))


def _device(file: Figures) -> Device:
    memory = file.number("device", "memory_gb", MEMORIES["device"])
    return Device(file.words("device", "name"), round(memory * 2**30))


def _range(largest: int | None) -> str:
    if largest is None:
        return f"1 to {MOST_NODES} nodes"
    return "1 node" if largest == 1 else f"1 to {largest} nodes"


def cores_here() -> int:
    """Cores that this process may run on; macOS tells only how many there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
