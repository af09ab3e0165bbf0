"""Where the elements of a Megatron-Core parameter lie in whole Hugging Face tensors.

A parameter, or the flat part of it that a distributed optimizer owns, is cut into rectangles, each
a rectangle of one Hugging Face tensor. The rectangles are views: to read or write them is to read
or write the parameter. So a state is stored in a form that no layout has left a mark on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from rpeg.runtime.megatron.weights import Unit
from rpeg.runtime.models.shape import ModelShape


@dataclass(frozen=True)
class Shard:
    """Which part of every whole parameter a process holds."""

    rank: int
    """Of the tensor-parallel group."""
    width: int
    """Processes of that group."""


@dataclass(frozen=True)
class Piece:
    """A rectangle of a Hugging Face tensor."""

    source: str
    """The tensor's name."""
    offset: tuple[int, ...]
    """Where the rectangle begins in it."""
    data: Tensor
    """Its elements: a view of the parameter."""


@dataclass(frozen=True)
class _Block:
    """Neighbouring rows of a parameter that are neighbouring rows of one Hugging Face tensor."""

    source: str
    row: int
    """First row in the parameter."""
    rows: int
    offset: tuple[int, int]
    """(row, column) of its first element in the whole tensor."""


def pieces(
    unit: Unit, shape: ModelShape, shard: Shard, local: tuple[int, ...], flat: Tensor, begin: int
) -> Iterator[Piece]:
    """The rectangles of `flat`: elements [begin, begin + len(flat)) of a parameter of shape
    `local`, row by row. Padding rows of a vocabulary are left out.
    """
    columns = local[1] if len(local) == 2 else 1
    for block in _blocks(unit, shape, shard, local):
        first, last = block.row * columns, (block.row + block.rows) * columns
        low, high = max(first, begin), min(last, begin + len(flat))
        for start, end in _spans(low, high, columns):
            row, column = divmod(start, columns)
            offset = (block.offset[0] + row - block.row, block.offset[1] + column)
            width = min(columns, end - start)
            data = flat[start - begin : end - begin]
            yield Piece(
                block.source,
                offset[: len(local)],
                data.view(-1, width) if len(local) == 2 else data,
            )


def _spans(low: int, high: int, columns: int) -> Iterator[tuple[int, int]]:
    """[low, high) in rectangles: the end of a row, whole rows, the beginning of a row."""
    head = min(high, -(-low // columns) * columns)
    tail = max(head, high // columns * columns)
    spans = ((low, head), (head, tail), (tail, high))
    yield from ((start, end) for start, end in spans if start < end)


def _blocks(
    unit: Unit, shape: ModelShape, shard: Shard, local: tuple[int, ...]
) -> Iterator[_Block]:
    rows = local[0]
    match unit.join:
        case "qkv":
            yield from _grouped_blocks(unit, shape, shard)
        case "stack":
            half = rows // 2
            for k, source in enumerate(unit.sources):
                yield _Block(source, k * half, half, (shard.rank * half, 0))
        case "vocab":
            first = shard.rank * rows
            yield _Block(unit.sources[0], 0, min(rows, shape.vocab - first), (first, 0))
        case _:
            row = shard.rank * rows if unit.dim == 0 else 0
            column = shard.rank * local[1] if unit.dim == 1 else 0
            yield _Block(unit.sources[0], 0, rows, (row, column))


def _grouped_blocks(unit: Unit, shape: ModelShape, shard: Shard) -> Iterator[_Block]:
    """q, k and v of one key-value head after the other."""
    ratio, groups = shape.heads // shape.kv_heads, shape.kv_heads // shard.width
    row = 0
    for group in range(shard.rank * groups, (shard.rank + 1) * groups):
        for source, heads in zip(unit.sources, (ratio, 1, 1), strict=True):
            rows = heads * shape.head_dim
            yield _Block(source, row, rows, (group * rows, 0))
            row += rows
