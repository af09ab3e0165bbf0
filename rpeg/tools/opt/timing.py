"""`--time-passes`: where the time of a run went, as a tree of its parts."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Part:
    """One part of a run; `wall` and `cpu` are seconds, those of its own parts included."""

    label: str
    wall: float = 0.0
    cpu: float = 0.0
    parts: dict[Hashable, Part] = field(default_factory=dict["Hashable", "Part"])

    def child(self, label: str, key: Hashable) -> Part:
        """The part of this key, made the first time."""
        return self.parts.setdefault(key, Part(label))

    def rest(self) -> Part:
        """What none of its parts accounts for."""
        parts = self.parts.values()
        wall, cpu = self.wall - sum(p.wall for p in parts), self.cpu - sum(p.cpu for p in parts)
        return Part("rest", max(wall, 0.0), max(cpu, 0.0))


class Timer:
    """Times spans, one inside the other; spans of one key add up."""

    def __init__(self) -> None:
        self.total = Part("total")
        self._open = [self.total]

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Times everything; what no span covers is reported as the rest."""
        with _clocked(self.total):
            yield

    @contextmanager
    def span(self, label: str, key: Hashable = None) -> Iterator[None]:
        """Times a part of the part around it. The key is the label, if none is given."""
        part = self._open[-1].child(label, key if key is not None else label)
        self._open.append(part)
        try:
            with _clocked(part):
                yield
        finally:
            self._open.pop()

    def report(self) -> str:
        """The tree: wall and CPU milliseconds with their shares of the total."""
        head = f"{'wall':>10} ms {'':>8}{'cpu':>9} ms\n"
        return head + "".join(_lines(self.total, self.total, 0))


@contextmanager
def _clocked(part: Part) -> Iterator[None]:
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        yield
    finally:
        part.wall += time.perf_counter() - wall
        part.cpu += time.process_time() - cpu


def _lines(part: Part, total: Part, depth: int) -> Iterator[str]:
    wall, cpu = _amount(part.wall, total.wall), _amount(part.cpu, total.cpu)
    yield f"{wall}{cpu}  {'  ' * depth}{part.label}\n"
    if part.parts:
        for child in (*part.parts.values(), part.rest()):
            yield from _lines(child, total, depth + 1)


def _amount(seconds: float, total: float) -> str:
    share = 100 * seconds / total if total else 0.0
    return f"{seconds * 1e3:10.1f} {share:6.1f} % "
