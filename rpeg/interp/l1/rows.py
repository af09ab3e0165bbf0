"""Values of many rows, in parts: taken apart by row numbers, and put together again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from rpeg.interp.network import Outputs
from rpeg.interp.values import LossTerm
from rpeg.runtime.recordings.recording import StepRecord
from rpeg.runtime.trajectories import Batch, Demos, Pairs, Prompts, Trajectories

_TENSORS = ("sampled", "rewards", "logprobs", "values")
"""Of a step's record, by row."""


@dataclass(frozen=True)
class Chunk:
    """A part of a value of many rows."""

    rows: Tensor
    """[k] int64: which rows of the whole these are."""
    value: object


@dataclass(frozen=True)
class Chunks:
    """A value that comes in parts, in the order in which they come."""

    parts: tuple[Chunk, ...]

    def join(self) -> object:
        """The whole, in the order of the rows."""
        return join([p.value for p in self.parts], [p.rows for p in self.parts])


def select(value: object, rows: Tensor) -> object:
    """Some rows of a value; the value itself if it has none."""
    match value:
        case Tensor():
            return value[rows]
        case Trajectories():
            return value.select(rows)
        case Prompts() | Demos() | Pairs():
            return type(value)(tuple(value.rows[int(k)] for k in rows), value.ordinals[rows])
        case _:
            return value


def count(value: Batch | Prompts | Tensor) -> int:
    """How many rows a value has."""
    return len(value) if isinstance(value, Tensor) else len(value.rows)


def join(values: Sequence[object], rows: Sequence[Tensor]) -> object:
    """The whole of parts, which hold these rows of it, in the order of the rows."""
    order = torch.cat(list(rows)).argsort()
    match values[0]:
        case Tensor():
            return torch.cat([v for v in values if isinstance(v, Tensor)])[order]
        case Trajectories():
            return concatenated([v for v in values if isinstance(v, Trajectories)]).select(order)
        case LossTerm():
            return _summand([v for v in values if isinstance(v, LossTerm)], rows)
        case _:
            return values[0]


def concatenated(parts: Sequence[Trajectories]) -> Trajectories:
    """All samples, part by part."""
    held = {f.name: _end_to_end([getattr(y, f.name) for y in parts]) for f in fields(Trajectories)}
    return Trajectories(**held)


def _end_to_end(values: Sequence[Any]) -> Any:
    match values[0]:
        case Tensor():
            return torch.cat(list(values))
        case tuple():
            return tuple(one for value in values for one in value)
        case _:
            return values[0]


@dataclass(frozen=True, kw_only=True)
class ChunkedTerm(LossTerm):
    """A summand of a loss that comes in chunks: an update asks for rows chunk by chunk."""

    chunks: tuple[Tensor, ...]
    """The rows of each, in the order in which they come."""


def _summand(terms: Sequence[LossTerm], rows: Sequence[Tensor]) -> ChunkedTerm:

    def per_token(out: Outputs, wanted: Tensor) -> Tensor:
        k = next(k for k, held in enumerate(rows) if bool(torch.isin(wanted, held).all()))
        local = torch.tensor([int((rows[k] == row).nonzero()) for row in wanted])
        return terms[k].per_token(out, local)

    whole = join([term.batch for term in terms], rows)
    assert isinstance(whole, Batch), "terms of one loss have one kind of batch"
    targets = {
        name: torch.cat([term.targets[name] for term in terms])[torch.cat(list(rows)).argsort()]
        for name in terms[0].targets
    }
    return ChunkedTerm(terms[0].name, whole, per_token, targets, chunks=tuple(rows))


def merge(records: Sequence[StepRecord], rows: Sequence[Tensor], into: StepRecord) -> None:
    """Writes what parts noted into the record of their step."""
    for record in records:
        into.makers |= record.makers
        into.events += record.events
        for name, value in record.metrics.items():
            into.metrics[name] = into.metrics.get(name, 0.0) + value
    for group in ("trajectories", *_TENSORS):
        for name in _names(records, group):
            parts = [getattr(record, group)[name] for record in records]
            getattr(into, group)[name] = join(parts, rows)


def _names(records: Sequence[StepRecord], group: str) -> Iterator[str]:
    yield from dict.fromkeys(name for record in records for name in getattr(record, group))
