"""Time of collectives among GPUs, as NCCL runs them.

A group of n ranks has n1 in each link domain (NVLink, Infinity Fabric) and n2 = n/n1 domains, which
network cards join. A message of B bytes per rank takes the cheapest of NCCL's algorithms and
protocols (its tuning model, src/graph/tuning.cc): ring or tree, each with LL, LL128 or Simple, or
the switch's own reduction (NVLS). Time = base + hops·latency + moved bytes / bandwidth.

Bus bandwidth is the usual measure: bytes that cross a link, over time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import ArrayLike

from rpeg.cost.arrays import Array, larger, smaller
from rpeg.cost.hardware import MICRO, Machine

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = "all_reduce", "all_gather", "reduce_scatter"
ALL_TO_ALL, POINT_TO_POINT, BROADCAST = "all_to_all", "point_to_point", "broadcast"
OPERATIONS = (
    *(ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER),
    *(ALL_TO_ALL, POINT_TO_POINT, BROADCAST),
)

SWITCH_SHARE = 0.72
"""Bytes per second that Hopper's switch reduces, of what the link reaches, whatever the ranks."""

SWITCH_FILL_S = 7.5 * MICRO
"""Of each rank, until the switch reduces and multicasts at once: chunks of 128 KiB on 16 channels
(Hopper) or 24 (Blackwell) go up before the first comes down. Small messages shrink their chunks."""

SWITCH_BASE_S = 32 * MICRO
"""What a reduction in the switch takes at least."""


@dataclass(frozen=True)
class Protocol:
    """One of NCCL's protocols: its base in seconds, its hops in hops of the link, its bandwidth."""

    name: str
    base_s: float
    hop: float
    net_hop: float
    bandwidth: float
    """Share of the bandwidth that large messages reach."""


PROTOCOLS = (
    Protocol("LL", 8 * MICRO, 1.2, 1.0, 0.35),
    Protocol("LL128", 9 * MICRO, 1.3, 1.4, 0.55),
    Protocol("Simple", 20 * MICRO, 8.0, 2.8, 1.0),
)
"""Shares that nccl-tests show on A100 and H100; NCCL's own table is more hopeful of LL128."""


@dataclass(frozen=True)
class Group:
    """Ranks of a collective: all of them, and those of one link domain."""

    ranks: Array
    inside: Array

    @classmethod
    def of(cls, machine: Machine, ranks: ArrayLike, stride: ArrayLike = 1) -> Group:
        """A group whose neighbours lie `stride` GPUs apart, as Megatron orders its ranks."""
        n, apart = np.asarray(ranks, dtype=np.float64), np.asarray(stride, dtype=np.float64)
        inside = np.clip(np.floor(machine.link.gpus / apart), 1.0, n)
        return cls(n, inside)

    @property
    def outside(self) -> Array:
        """Link domains that the group spans."""
        return np.ceil(self.ranks / self.inside)


def collective(machine: Machine, operation: str, size: ArrayLike, group: Group) -> Array:
    """Seconds of a collective; `size` is NCCL's count in bytes.

    That is each rank's whole buffer: what all-reduce and broadcast carry, all-gather's output,
    reduce-scatter's input, all that a rank sends in all-to-all (its own share included).
    """
    data = np.asarray(size, dtype=np.float64)
    if machine.launches_itself:
        return np.where(group.ranks > 1, _through_sockets(machine, operation, data, group), 0.0)
    if operation == POINT_TO_POINT:
        return _point_to_point(machine, data, group)
    if operation == ALL_TO_ALL:
        return np.where(group.ranks > 1, _all_to_all(machine, data, group), 0.0)
    best = _ring(machine, operation, data, group)
    if operation == ALL_REDUCE:
        best = smaller(best, _tree(machine, data, group))
        best = smaller(best, _in_switch(machine, data, group))
    return np.where(group.ranks > 1, best, 0.0)


def bus_factor(operation: str, ranks: Array) -> Array:
    """Bytes that cross a link for each byte of the count: NCCL's bus bandwidth over its own."""
    if operation == ALL_REDUCE:
        return 2.0 * (ranks - 1.0) / ranks
    if operation in (BROADCAST, POINT_TO_POINT):
        return np.ones_like(ranks)
    return (ranks - 1.0) / ranks


def narrowest(machine: Machine, group: Group) -> Array:
    """Bytes per second of the slowest link that a ring through all ranks crosses.

    Between domains every rank of a domain brings its own card, so a ring runs over them all.
    """
    rack = machine.nodes_per_rack * machine.gpus_per_node
    uplink = np.where(group.ranks > rack, machine.oversubscription, 1.0)
    cards = machine.nic.reached / uplink * group.inside
    link = machine.link.reached
    return np.where(group.outside > 1, smaller(link, cards), link)


def _through_sockets(machine: Machine, operation: str, data: Array, group: Group) -> Array:
    """Gloo's rings. In each round a core sends and receives, one after the other: two hops, two
    copies. Its reduce-scatter adds up everything, and keeps a part.
    """
    n = group.ranks
    one_way = operation in (BROADCAST, POINT_TO_POINT)
    rounds = 2.0 if operation in (ALL_REDUCE, REDUCE_SCATTER) else 1.0
    hops = np.ceil(np.log2(n)) if one_way else 2.0 * rounds * (n - 1.0)
    copied = data if one_way else 2.0 * rounds * data * (n - 1.0) / n
    link = np.where(group.outside > 1, machine.nic.reached, machine.link.reached)
    latency = np.where(group.outside > 1, machine.nic.latency_s, machine.link.latency_s)
    return np.asarray(hops * latency + copied / link)


def _ring(machine: Machine, operation: str, data: Array, group: Group) -> Array:
    """The best protocol of a ring: n-1 steps, twice that for an all-reduce."""
    twice = 2.0 if operation == ALL_REDUCE else 1.0
    between = (group.outside - 1.0) * twice
    within = (group.ranks - 1.0) * twice - between
    moved = data * bus_factor(operation, group.ranks) / narrowest(machine, group)
    return _best(_hops(machine, p, within, between) + moved / p.bandwidth for p in PROTOCOLS)


def _tree(machine: Machine, data: Array, group: Group) -> Array:
    """The best protocol of a double tree: log hops between domains, a chain within."""
    depth = np.ceil(np.log2(larger(group.outside, 1.0)))
    moved = 2.0 * data / narrowest(machine, group) / 0.92
    within, between = 2.0 * (group.inside - 1.0), 2.0 * depth
    return _best(_hops(machine, p, within, between) + moved / p.bandwidth for p in PROTOCOLS)


def _hops(machine: Machine, protocol: Protocol, within: Array, between: Array) -> Array:
    """Seconds until the first byte is through."""
    links = within * protocol.hop * machine.link.latency_s
    return protocol.base_s + links + between * protocol.net_hop * machine.nic.latency_s


def _in_switch(machine: Machine, data: Array, group: Group) -> Array:
    """The switch adds up (NVLS): every byte goes up once and comes down once.

    Between domains each rank's card carries its share; what the slower part hides of the other
    is all but a tenth.
    """
    if not machine.link.reduces_in_switch:
        return np.full_like(data + group.ranks, np.inf)
    within = data / (machine.link.reached * SWITCH_SHARE * machine.link.reduces_in_switch)
    fill = smaller(within / 2.0, SWITCH_FILL_S * group.inside)
    share = data / group.inside
    cards = share * bus_factor(ALL_REDUCE, larger(group.outside, 1.0)) / machine.nic.reached
    across = np.where(group.outside > 1, cards, 0.0)
    depth = 2.0 * np.ceil(np.log2(larger(group.outside, 1.0)))
    moved = larger(within, across) + 0.1 * smaller(within, across)
    latency = depth * PROTOCOLS[-1].net_hop * machine.nic.latency_s
    return np.where(group.inside > 1, SWITCH_BASE_S + fill + moved + latency, np.inf)


def _all_to_all(machine: Machine, data: Array, group: Group) -> Array:
    """Each rank sends 1/n of its buffer to every other; cards carry what leaves the domain."""
    near = data * (group.inside - 1.0) / group.ranks / machine.link.reached
    far = data * (group.ranks - group.inside) / group.ranks / machine.nic.reached
    hops = (group.inside - 1.0) * machine.link.latency_s
    hops = hops + (group.outside - 1.0) * machine.nic.latency_s
    return PROTOCOLS[0].base_s + hops + larger(near, far)


def dispatch(
    machine: Machine, size: Array, group: Group, copies: float, once: bool = False
) -> Array:
    """Seconds to send tokens to experts spread over a group; `size` counts every copy.

    A token goes once to each domain that it has experts in, and is copied on there
    (DeepSeek-V3, arXiv 2412.19437, section 3.2.2): for each of them, or `once` for each GPU.
    """
    domains = group.outside
    far = size / copies * (domains - 1.0) * _reached(domains, copies) / machine.nic.reached
    gpus = group.ranks * _reached(group.ranks, copies) / copies if once else 1.0
    near = gpus * size * (group.inside - 1.0) / group.inside / machine.link.reached
    hops = (group.inside - 1.0) * machine.link.latency_s
    hops = hops + (domains - 1.0) * machine.nic.latency_s
    time = PROTOCOLS[0].base_s + hops + larger(near, far)
    return np.where(group.ranks > 1, time, 0.0)


def _reached(places: Array, copies: float) -> Array:
    """Share of so many places that uniform routing of `copies` copies reaches: each is missed by
    one with probability 1 - 1/places.
    """
    return 1.0 - (1.0 - 1.0 / places) ** copies


def _point_to_point(machine: Machine, data: Array, group: Group) -> Array:
    far = group.outside > 1
    rate = np.where(far, machine.nic.reached, machine.link.reached)
    latency = np.where(far, machine.nic.latency_s, machine.link.latency_s)
    return np.asarray(PROTOCOLS[0].base_s + latency + data / rate)


MESSAGE_S, DEVICE_MESSAGE_S = 1.05 * MICRO, 6.5 * MICRO
"""What a rank takes to start a message: through a card, and by a copy between two GPUs."""

INJECTED_BYTES, INJECTION_S = 192, 9.8 * MICRO
"""Messages that Slingshot's cards take with their command, and the host's copy from the GPU that
this costs where the library does so whatever memory it sends from (MPICH)."""

PROXY_S = 22 * MICRO
"""What a put to another node takes where the GPU asks its host's proxy for it (NVSHMEM)."""


def stream(machine: Machine, size: ArrayLike, through_card: bool, injects: bool = False) -> Array:
    """Seconds a message of many that follow one another, as MPI's bandwidth tests send them.

    Starting and sending overlap but for a tenth of the shorter one. A pair of GPUs without a switch
    has the links between the two of them. `injects`: small messages go with their command.
    """
    data = np.asarray(size, dtype=np.float64)
    pair = machine.link.reached / np.where(machine.link.gpus <= 4, machine.link.gpus - 1.0, 1.0)
    rate = machine.nic.reached if through_card else pair
    start = np.full_like(data, MESSAGE_S if through_card else DEVICE_MESSAGE_S)
    if injects and through_card:
        start = start + np.where(data <= INJECTED_BYTES, INJECTION_S, 0.0)
    return larger(start, data / rate) + 0.1 * smaller(start, data / rate)


def proxied_all_to_all(
    machine: Machine, size: ArrayLike, group: Group, lone: bool = False
) -> Array:
    """Seconds of an all-to-all whose puts to other nodes pass the hosts' proxies in turn.

    A `lone` thread signals that it is through with a put of its own.
    """
    data = np.asarray(size, dtype=np.float64)
    remote = group.ranks - group.inside
    puts = remote + (1.0 if lone else 0.0)
    return PROXY_S * puts + data * remote / group.ranks / machine.nic.reached


def _best(times: Iterable[Array]) -> Array:
    return reduce(smaller, times)
