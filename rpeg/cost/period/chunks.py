"""Streams: which tasks come in chunks, in how many, and which follow whose chunks.

A stage that streams from another starts as its first chunk is there. Chunks of a plan's `stream`
clauses and of `rpeg.stream` count alike; a batch is cut into few of them, since more bring nothing
that could be seen: the wait for the first chunk is a share 1 / number of the stage's time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.ir import Operation, SSAValue

from rpeg.cost.period.schedule import Schedule
from rpeg.ir.base import RpegOp
from rpeg.ir.ops.movement import clause_of
from rpeg.ir.ops.streams import StreamOp, chunkwise
from rpeg.ir.pools import task_around
from rpeg.ir.rsched import label_of
from rpeg.ir.stages import between, stages
from rpeg.ir.text.naming import trajectories_of
from rpeg.ir.types.values import TrajectoriesType
from rpeg.ir.vocabulary.settings import python_value

MOST = 8
"""Chunks of a batch in a graph."""


@dataclass
class Chunks:
    """How the tasks of a step are cut."""

    parts: dict[str, int] = field(default_factory=dict[str, int])
    """Label -> number of chunks, of what comes in more than one."""
    follows: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """(source, target): each chunk of the target needs no more than those of the source that hold
    its samples."""

    @staticmethod
    def of(schedule: Schedule) -> Chunks:
        """The chunks of a schedule."""
        found = Chunks()
        for op in schedule.tasks.values():
            for inner in op.walk():
                if isinstance(inner, RpegOp) and clause_of(inner, "stream") is not None:
                    found._add_clause(inner)
            if isinstance(op, StreamOp):
                found._add_stream(op)
        return found

    def number(self, label: str) -> int:
        """In how many chunks a task comes; 1: whole."""
        return self.parts.get(label, 1)

    def needed(self, source: str, target: str, chunk: int) -> int:
        """The last chunk of the source that a chunk of the target needs, both counted from 1."""
        total = self.number(source)
        if (source, target) not in self.follows:
            return total
        return math.ceil(chunk * total / self.number(target))

    def _add_clause(self, reader: RpegOp) -> None:
        """`stream(y, samples=32)`, on the line of a stage."""
        clause = clause_of(reader, "stream")
        assert clause is not None, "the caller has looked"
        source = stages(reader).get(str(python_value(clause.settings["source"])))
        if source is None or _inside(source) or _inside(reader):
            return
        groups, samples = (python_value(clause.settings.get(n)) for n in ("groups", "samples"))
        path = [source, *between(reader, source)]
        self._cut(path, _chunks(source.results[0], groups, samples))

    def _add_stream(self, stream: StreamOp) -> None:
        """`rpeg.stream`, up to its joins."""
        maker = stream.whole.owner
        if not isinstance(maker, Operation) or _inside(maker):
            return
        groups, samples = (python_value(s) for s in (stream.groups, stream.samples))
        path = [maker, stream, *chunkwise(stream)]
        self._cut(path, _chunks(stream.whole, groups, samples))

    def _cut(self, path: Sequence[Operation], number: int) -> None:
        """Cuts a source and all that follows its chunks."""
        labels = list(dict.fromkeys(label_of(task_around(op)) or "" for op in path))
        for label in labels:
            self.parts[label] = max(number, self.number(label))
        self.follows |= {(source, target) for source in labels for target in labels[1:]}


def _chunks(whole: SSAValue, groups: object, samples: object) -> int:
    """How many chunks of so many groups or samples there are, up to `MOST`."""
    y = trajectories_of(whole)
    assert y is not None and isinstance(y.type, TrajectoriesType), "a stream is of trajectories"
    if isinstance(groups, int):
        return min(MOST, math.ceil(y.type.prompts.data / groups))
    assert isinstance(samples, int), "a stream has a size"
    return min(MOST, math.ceil(y.type.prompts.data * y.type.n / samples))


def _inside(op: Operation) -> bool:
    """Whether it stands inside of a region, which runs whole."""
    return task_around(op) is not op
