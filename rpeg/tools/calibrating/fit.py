"""Rates and latencies that explain measured times best, in the formulas of `rpeg.cost`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rpeg.cost.arrays import Array
from rpeg.cost.collectives import Group, collective
from rpeg.cost.hardware import Link, Machine, load_machine
from rpeg.tools.calibrating.measured import Exchange, Measured, Timed

GRID = 9
"""Values of each constant of a link that one search tries."""

ZOOMS = 6
"""Searches, each a third as wide as the one before."""

CARRIER = "a100"
"""Any machine: of a collective within one domain, only the link's figures count."""

WIDEST = (30.0, 100.0)
"""Factors about the first guess of bandwidth and latency that the first search covers."""


@dataclass(frozen=True)
class Line:
    """seconds = work / rate + head."""

    rate: float
    """FLOPs or bytes per second."""
    head: float
    """Seconds."""

    def error(self, timed: Sequence[Timed]) -> float:
        """Median of |line / measured - 1|."""
        apart = [abs((one.work / self.rate + self.head) / one.seconds - 1.0) for one in timed]
        return float(np.median(apart))


def line(timed: Sequence[Timed]) -> Line:
    """Least squares of relative errors, neither constant below 0; one size of work has no head."""
    work = np.array([one.work for one in timed])
    seconds = np.array([one.seconds for one in timed])
    through_zero = Line(float(np.max(work / seconds)), 0.0)
    if len(set(work)) < 2:
        return through_zero
    table = np.stack([work / seconds, 1.0 / seconds], axis=1)
    (slope, head), *_ = np.linalg.lstsq(table, np.ones_like(seconds), rcond=None)
    return Line(1.0 / slope, head) if slope > 0 and head >= 0 else through_zero


def best_rate(timed: Sequence[Timed]) -> float:
    """The largest of the rates reached."""
    return max(one.work / one.seconds for one in timed)


@dataclass(frozen=True)
class Wire:
    """What a link is to the formulas of collectives."""

    bytes_per_s: float
    latency_s: float
    error: float
    """Median of |formula / measured - 1|."""


def wire(found: Measured) -> Wire:
    """The bandwidth and latency under which collectives take the times measured.

    The formulas choose among algorithms, so there is no line to fit: both constants are searched
    on a grid of logarithms, ever finer, for the least sum of |log(formula / measured)|.
    """
    exchanges, joined = found.collectives, _joined(found)
    guess = [max(one.bytes / one.seconds for one in exchanges), min(o.seconds for o in exchanges)]
    centre, spread = np.log(guess), np.log(WIDEST)
    steps = np.linspace(-1.0, 1.0, GRID)
    for _ in range(ZOOMS):
        tries = [centre + spread * (x, y) for x in steps for y in steps]
        centre = min(tries, key=lambda pair: float(np.sum(_apart(pair, exchanges, joined))))
        spread = spread / 3.0
    error = np.median(np.expm1(_apart(centre, exchanges, joined)))
    rate, latency = np.exp(centre)
    return Wire(float(rate), float(latency), float(error))


def _joined(found: Measured) -> Machine:
    """A machine whose one link joins the processes; cores have formulas of their own."""
    link = Link(1.0, found.processes, 0.0, reduces_in_switch=False, efficiency=1.0)
    machine = replace(load_machine(CARRIER), link=link)
    return machine if found.gpus else replace(machine, flops={"fp32": 1.0})


def _apart(pair: Array, exchanges: Sequence[Exchange], joined: Machine) -> Array:
    """|log(formula / measured)| of each exchange."""
    rate, latency = np.exp(pair)
    link = replace(joined.link, bytes_per_s=float(rate), latency_s=float(latency))
    machine = replace(joined, link=link)
    group = Group.of(machine, joined.link.gpus)
    found = []
    for operation in dict.fromkeys(one.operation for one in exchanges):
        mine = [one for one in exchanges if one.operation == operation]
        sizes, seconds = (np.array([getattr(o, f) for o in mine]) for f in ("bytes", "seconds"))
        found.append(np.abs(np.log(collective(machine, operation, sizes, group) / seconds)))
    return np.concatenate(found)
