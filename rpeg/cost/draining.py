"""Continuous batching of one batch: slots refill while prompts wait, then run empty.

While prompts wait, C sequences run. From then on nothing is admitted: of a slot's sequence, what
is left of its length decides how long it goes on. Where each slot has had many sequences, what is
left has the survival function ∫ₓ S(u) du / E[l] (the renewal theorem); after few, that of the
renewal equation, solved on a grid; where all ran from the start, S itself. The last of so many ends
at the mean of their maximum. Between, a step costs what it does for the sequences that still run.
Tokens are conserved: the steps with full slots are those that the rest leaves.
"""

from __future__ import annotations

import numpy as np

from rpeg.cost.arrays import Array, larger
from rpeg.cost.generation import Engine, Requests, Serving, concurrency, generation_time
from rpeg.cost.lengths import Distribution

GRID = 256
"""Points of the survival function, from 0 to the longest length."""


def drained_time(
    serving: Serving, requests: Requests, lengths: Distribution, engine: Engine, replicas: float
) -> float:
    """Seconds until the last of a batch's responses ends, on as many equal replicas; equal lengths
    end together.

    Args:
        serving: one replica.
        requests: its share.
        lengths: of responses.
        engine: how it runs.
        replicas: how many there are; the batch ends with the slowest.
    """
    if lengths.quantile(0.001) == lengths.quantile(0.999):
        return float(generation_time(serving, requests, engine))
    slots = float(concurrency(serving, requests, engine))
    number, mean = float(requests.number), float(requests.mean)
    width = lengths.quantile(1.0) / GRID
    left = remaining(lengths, number / slots - 1.0)
    full = max(number * mean / slots - float(left.sum()) * width, 0.0)
    alive = 1.0 - (1.0 - left) ** (slots * replicas)
    running = larger(slots * left / larger(alive, 1e-12), 1.0)
    emptying = float(np.sum(alive * serving.step(running, 0.0, engine))) * width
    steps = full * float(serving.step(slots, 0.0, engine)) + emptying
    each = float(serving.step(1.0, 1.0, engine) - serving.step(1.0, 0.0, engine))
    context = each * number * mean * float(requests.context)
    read = float(serving.prefill(number * requests.prompt, requests.prompt) / serving.pp)
    return float(engine.slowdown) * (steps + context + read)


def remaining(lengths: Distribution, before: float) -> Array:
    """Share of slots that still run at each point of the grid, once nothing waits any more; a slot
    had so many sequences `before` its last one, on average.
    """
    width = lengths.quantile(1.0) / GRID
    points = np.asarray((np.arange(2 * GRID) + 0.5) * width, np.float64)
    beyond = lengths.beyond(points)
    if before <= 0.0:
        return beyond[:GRID]
    renewals = _renewals(beyond[:GRID])
    ended = np.cumsum(renewals)
    if before >= ended[-1]:
        later = np.cumsum(beyond[:GRID][::-1])[::-1]
        return np.asarray(later / later[0])
    at = int(np.searchsorted(ended, before)) + 1
    found = beyond[at : at + GRID].copy()
    for age in range(1, at + 1):
        found += renewals[at - age] * beyond[age - 1 : age - 1 + GRID]
    return np.asarray(found / larger(found[0], 1.0))


def _renewals(beyond: Array) -> Array:
    """Sequences that end in a slot between one point and the next, by the renewal equation."""
    ends = -np.diff(beyond, prepend=1.0)
    found = np.zeros(len(ends))
    for point in range(len(ends)):
        found[point] = ends[point] + found[:point] @ ends[:point][::-1]
    return found
