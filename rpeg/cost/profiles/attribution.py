"""Why a stage takes as long as it does: what would remain on machines that differ in one part.

A formula of seconds is asked again with links that are free, and with arithmetic or memory so slow
that nothing else counts. So every formula is attributed the same way, and the causes add up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from rpeg.cost.hardware import Link, Machine

SLOW = 1e6
"""By how much slower a part has to be for the rest not to matter."""

ENDLESS = 1e30

Seconds = Callable[[Machine], float]
"""Seconds of a stage on a machine."""


@dataclass(frozen=True)
class Causes:
    """Seconds by what the hardware does meanwhile; they add up to the stage's."""

    compute: float
    """Arithmetic of matmuls and attention, at the rates that they reach."""
    memory: float
    """What device memory adds where it is slower than arithmetic."""
    communication: float
    """What would go if links were free."""
    overhead: float
    """Launches, scheduling, and heads and tails of kernels."""
    moved_bytes: float
    """Bytes that one GPU's memory moves."""
    card_s: float
    """Seconds that one process's card is busy, hidden by other work or not."""


def causes(seconds: Seconds, machine: Machine) -> Causes:
    """Attributes a formula. Computation and memory overlap within kernels, as in the formula."""
    whole, linkless = seconds(machine), seconds(_free_links(machine))
    compute = seconds(_slowed(machine, flops=True, memory=False)) / SLOW
    both = seconds(_slowed(machine, flops=True, memory=True)) / SLOW
    memory_alone = seconds(_slowed(machine, flops=False, memory=True)) / SLOW
    kernels = min(max(both, compute), linkless)
    return Causes(
        compute=min(compute, kernels),
        memory=kernels - min(compute, kernels),
        communication=whole - linkless,
        overhead=linkless - kernels,
        moved_bytes=memory_alone * machine.memory_rate,
        card_s=seconds(_nothing_but(machine, machine.nic)) - seconds(_nothing_but(machine)),
    )


def _nothing_but(machine: Machine, nic: Link | None = None) -> Machine:
    """Arithmetic, memory and links endlessly fast, cards too unless given."""
    endless = _slowed(machine, flops=False, memory=False)
    return replace(endless, nic=endless.nic if nic is None else nic)


def _free_links(machine: Machine) -> Machine:
    return replace(machine, link=_free(machine.link), nic=_free(machine.nic))


def _free(link: Link) -> Link:
    return replace(link, bytes_per_s=ENDLESS, latency_s=0.0)


def _slowed(machine: Machine, *, flops: bool, memory: bool) -> Machine:
    """Free links; arithmetic and memory slow, or endlessly fast."""
    arithmetic = {name: rate / SLOW if flops else ENDLESS for name, rate in machine.flops.items()}
    rate = machine.hbm_bytes_per_s / SLOW if memory else ENDLESS
    return replace(_free_links(machine), flops=arithmetic, hbm_bytes_per_s=rate)
