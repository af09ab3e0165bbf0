"""Threads that stand for the processes of a launch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from torch.distributed import HashStore  # type: ignore[attr-defined]

from rpeg.runtime import world
from rpeg.runtime.pools import wire


def as_processes(patch: pytest.MonkeyPatch, bodies: Sequence[Callable[[], object]]) -> list[object]:
    """What the bodies return, each run as one process of a launch; raises what one failed with."""
    store, here = HashStore(), threading.local()
    patch.setattr(world, "launch", lambda: world.Launch(store, here.rank, len(bodies)))
    patch.setattr(wire, "PATIENCE", timedelta(seconds=60))

    def run(rank: int, body: Callable[[], object]) -> object:
        here.rank = rank
        return body()

    with ThreadPoolExecutor(len(bodies)) as pool:
        found = [pool.submit(run, rank, body) for rank, body in enumerate(bodies)]
        return [future.result(timeout=60) for future in found]
