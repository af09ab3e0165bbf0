"""`--pass-statistics`: how many operations each pass left, and its own counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from rpeg.passes.base import RpegPass


@dataclass
class Entry:
    """One pass of the pipeline; chunks of a file add up."""

    name: str
    before: int = 0
    """Operations, those of regions included."""
    after: int = 0
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    """The counts of a pass of ours, over all chunks."""


class Statistics:
    """The entries of a run."""

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}

    @contextmanager
    def of(self, number: int, step: ModulePass, module: ModuleOp) -> Iterator[None]:
        """Counts what pass number `number` does to a module inside."""
        entry = self._entries.setdefault(number, Entry(str(step)))
        entry.before += _size(module)
        yield
        entry.after += _size(module)
        if isinstance(step, RpegPass):
            entry.counts = step.statistics.counts

    def report(self) -> str:
        """One block per pass, in the order in which they ran."""
        return "".join(line for entry in self._entries.values() for line in _lines(entry))


def _lines(entry: Entry) -> Iterator[str]:
    yield f"{entry.name}\n"
    yield f"{entry.before:8} -> {entry.after} operations\n"
    yield from (f"{number:8} {what}\n" for what, number in entry.counts.items())


def _size(module: ModuleOp) -> int:
    return sum(1 for _ in module.walk())
