"""Jobs that wait for one of several workers, first come, first served."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from rpeg.cost.arrays import Array


def served(arrivals: Sequence[float], seconds: Sequence[float], workers: int) -> Array:
    """When each job is done; they come in any order and run for so long each."""
    done = np.zeros(len(arrivals))
    free = [min(arrivals, default=0.0)] * workers
    for job in np.argsort(arrivals, kind="stable"):
        start = max(float(arrivals[job]), heapq.heappop(free))
        done[job] = start + seconds[job]
        heapq.heappush(free, float(done[job]))
    return done
