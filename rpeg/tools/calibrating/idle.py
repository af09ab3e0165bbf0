"""Whether the machine is busy with something else, so that measurements would come out too slow."""

from __future__ import annotations

import time
from pathlib import Path

LOOK_S = 1.0
BUSY = 0.1
"""Share of the cores from which on others count as working."""

_STAT = Path("/proc/stat")


def others_share() -> float | None:
    """Share of all cores that work now, while this process sleeps; None where nothing tells."""
    if not _STAT.is_file():
        return None
    before = _ticks()
    time.sleep(LOOK_S)
    busy, total = (after - was for after, was in zip(_ticks(), before, strict=True))
    return busy / total if total else 0.0


def _ticks() -> tuple[int, int]:
    """Clock ticks in which cores worked, and all (proc(5): idle and iowait are the rest)."""
    first = _STAT.read_text(encoding="ascii").partition("\n")[0]
    ticks = [int(word) for word in first.split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)
