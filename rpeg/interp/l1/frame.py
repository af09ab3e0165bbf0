"""A step of L1: operations run in parts, and know where they run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from xdsl.ir import Operation, SSAValue

from rpeg.interp.frame import Frame, Handler
from rpeg.interp.l1.rows import Chunk, ChunkedTerm, Chunks, join, merge, select
from rpeg.interp.l1.shards import Home, home
from rpeg.interp.l1.timing import Timing
from rpeg.interp.rectangle import Rectangle
from rpeg.ir.ops.movement import clause_of, pool_of
from rpeg.ir.ops.streams import ENDS, JoinOp
from rpeg.ir.text.naming import trajectories_of
from rpeg.ir.vocabulary.settings import python_value
from rpeg.runtime.recordings.recording import StepRecord


@dataclass(frozen=True)
class Part:
    """What is done at once of an operation's work."""

    rows: Tensor
    """[k] int64: of its results."""
    values: Mapping[SSAValue, object]
    """What it reads instead of whole values."""


@dataclass
class PlacedFrame(Frame):
    """One step on process groups."""

    groups: Mapping[str, range] = field(kw_only=True)
    """Process groups: their ranks."""
    timing: Timing = field(kw_only=True)

    def evaluate(self, op: Operation) -> Sequence[object]:
        """A value for each result; what reads chunks runs chunk by chunk."""
        if not isinstance(op, JoinOp | ENDS):
            found = (held for v in op.operands if isinstance(held := self._values[v], Chunks))
            if (chunks := next(found, None)) is not None:
                return self._by_chunk(op, chunks)
        return super().evaluate(op)

    # ---- values of other steps and groups

    def holds(self, value: SSAValue) -> bool:
        """Whether the step has come so far."""
        return value in self._values

    def bind(self, values: Mapping[SSAValue, object]) -> None:
        """Sets what another step has made, or what only the machine knows."""
        self._values |= values

    # ---- parts

    def _by_chunk(self, op: Operation, chunks: Chunks) -> Sequence[object]:
        """Results in the same chunks as what is read."""
        inputs = {v: self._values[v] for v in _inputs(op)}
        parts = [
            Part(chunk.rows, {v: _of_chunk(held, k, chunk.rows) for v, held in inputs.items()})
            for k, chunk in enumerate(chunks.parts)
        ]
        found = self._in_parts(op, parts, self.handlers)
        rows = [part.rows for part in parts]
        columns = zip(*found, strict=True)
        return [Chunks(tuple(map(Chunk, rows, values))) for values in columns]

    def whole(
        self, op: Operation, parts: Sequence[Part], handlers: Mapping[type[Operation], Handler]
    ) -> Sequence[object]:
        """The results of all parts, which these handlers compute, put together."""
        found, rows = self._in_parts(op, parts, handlers), [part.rows for part in parts]
        return [join(values, rows) for values in zip(*found, strict=True)]

    def _in_parts(
        self, op: Operation, parts: Sequence[Part], handlers: Mapping[type[Operation], Handler]
    ) -> list[Sequence[object]]:
        """Results part after part; what the parts note becomes the step's record."""
        frames = [self._part(part, handlers) for part in parts]
        found = [frame.evaluate(op) for frame in frames]
        merge([frame.record for frame in frames], [part.rows for part in parts], into=self.record)
        return found

    def _part(self, part: Part, handlers: Mapping[type[Operation], Handler]) -> PlacedFrame:
        around = replace(self.around, oracle=self.around.oracle.part(part.rows))
        values = {**self._values, **part.values}
        return replace(self, handlers=handlers, record=StepRecord(), around=around, _values=values)

    def reading(self, values: Mapping[SSAValue, object]) -> PlacedFrame:
        """The same step, where some values are others."""
        return replace(self, _values={**self._values, **values})

    # ---- places

    def home_of(self, op: Operation) -> Home | None:
        """Where a stage runs, and in which layout; None if it has no process group."""
        pool = pool_of(op)
        return None if pool is None else home(pool, self.groups[pool], clause_of(op, "par"))

    def microbatches(self, op: Operation, rows: Rectangle, chosen: Tensor) -> Sequence[Tensor]:
        """Chunk by chunk each replica's part of the `chosen` rows, cut by the stage's bound."""
        at = self.home_of(op)
        mine = shares(len(rows.ids), rows.together, 1 if at is None else at.replicas)
        terms = (t for v in op.operands if isinstance(t := self._values[v], ChunkedTerm))
        chunks = next((term.chunks for term in terms), (chosen,))
        lengths = rows.starts + rows.mask.sum(dim=1)
        parts = [_common(chosen, _common(chunk, share)) for chunk in chunks for share in mine]
        return [cut for part in parts for cut in bounded(op, part, lengths, rows.together)]


def _common(rows: Tensor, others: Tensor) -> Tensor:
    return rows[torch.isin(rows, others)]


def shares(rows: int, unit: int, replicas: int) -> list[Tensor]:
    """Which of so many rows each replica works on: about equally many units of rows, in order."""
    units = torch.arange(rows // unit).tensor_split(replicas)
    return [(u.unsqueeze(1) * unit + torch.arange(unit)).flatten() for u in units]


def bounded(op: Operation, rows: Tensor, lengths: Tensor, unit: int = 1) -> list[Tensor]:
    """Rows [k] in micro-batches within the bound of a stage's `mb`, in their order.

    `lengths` [samples] are the model inputs of every row; one that is longer goes alone. `unit`
    rows, side by side, are never parted.
    """
    clause = clause_of(op, "mb")
    bound = {} if clause is None else {k: python_value(v) for k, v in clause.settings.items()}
    kind, most = next(iter(bound.items()), ("", None))
    parts: list[list[int]] = []
    filled = 0
    for held in rows.view(-1, unit).tolist():
        size = int(lengths[held].sum()) if kind == "tokens" else unit
        if not parts or (isinstance(most, int) and filled + size > most):
            parts.append([])
            filled = 0
        parts[-1] += held
        filled += size
    return [torch.tensor(part) for part in parts]


def _inputs(op: Operation) -> list[SSAValue]:
    """Operands, and the trajectories that they belong to."""
    owners = (trajectories_of(value) for value in op.operands)
    return [*op.operands, *(owner for owner in owners if owner is not None)]


def _of_chunk(held: object, number: int, rows: Tensor) -> object:
    """What a chunk's part of an operation reads for a value."""
    return held.parts[number].value if isinstance(held, Chunks) else select(held, rows)
