"""A cluster to price a plan on: how many GPUs there are, and how fast."""

from __future__ import annotations

from dataclasses import dataclass

from rpeg.cost.hardware import Machine, NoSpeedsError, load_machine
from rpeg.ir.clusters import Cluster, ClusterError, load_cluster
from rpeg.ir.figures import FigureError


@dataclass(frozen=True)
class Platform:
    """A sized cluster and the speed of its parts; a process is one GPU, or one core without."""

    cluster: Cluster
    machine: Machine

    @property
    def has_gpus(self) -> bool:
        """Whether processes have GPUs."""
        return self.cluster.gpus > 0

    @property
    def processes_per_node(self) -> int:
        """GPUs of a node, or cores of one without."""
        return self.cluster.gpus_per_node or self.cluster.cores_per_node

    @property
    def memory_bytes(self) -> float:
        """What a process can hold; processes on cores share the memory of their host."""
        if self.has_gpus:
            return self.machine.memory_bytes
        return self.machine.host_memory_bytes / self.processes_per_node


def load_platform(name: str) -> Platform:
    """The cluster `NAME-NODES`, `NAME` or `PATH.toml`.

    Raises:
        NoSpeedsError: it has a size and no speeds.
        ClusterError: there is no such cluster, or its file isn't whole.
    """
    cluster = load_cluster(name)
    sized = cluster.name.removesuffix(f"-{cluster.nodes}")
    if sized == "cpu":
        raise NoSpeedsError(
            '"cpu" does not say how fast this machine is: measure it with '
            "`rpeg calibrate -o here.toml`, and name here.toml"
        )
    try:
        return Platform(cluster, load_machine(name if name.endswith(".toml") else sized))
    except FigureError as error:
        raise ClusterError(str(error)) from error
