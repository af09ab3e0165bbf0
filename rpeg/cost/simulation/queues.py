"""Jobs that wait for one of several workers, first come, first served."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from rpeg.cost.arrays import Array


def served(seconds: Sequence[float], workers: int) -> Array:
    """When each job is done; all wait from the start, in order, and run for so long each."""
    free = [0.0] * workers
    done = np.zeros(len(seconds))
    for job, taken in enumerate(seconds):
        done[job] = free[0] + taken
        heapq.heapreplace(free, float(done[job]))
    return done
