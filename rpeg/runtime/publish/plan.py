"""What goes from which process to which, in buckets: the same list on every process.

Each process says which boxes of which tensors it holds, and which it wants. Intersecting them gives
the transfers (`rpeg.sharding.boxes`); those that leave one process for the same others are cut into
pieces and packed, end to end, into buckets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rpeg.sharding.boxes import Box, Held, Transfer, transfers

MIB = 1 << 20
BUCKET_BYTES = 32 * MIB
PIECE_BYTES = 4 * MIB
"""Pieces are larger only where one row is; small enough for a processor's cache."""
_ALIGNED = 16
"""Bytes: where pieces begin in a bucket, so that any element type can be read there."""


@dataclass(frozen=True)
class Share:
    """What one process has to do with a model's weights."""

    holds: Sequence[Held] = ()
    wants: Sequence[Held] = ()


@dataclass(frozen=True)
class End:
    """Where a piece lies in one of a process's arrays."""

    array: int
    box: Box


@dataclass(frozen=True)
class Piece:
    """A box of a tensor, on its way from one process to others."""

    tensor: str
    box: Box
    """In the whole tensor."""
    source: End
    targets: tuple[End, ...]
    """One for each receiver."""
    begin: int = 0
    """Byte of the bucket at which it begins."""


@dataclass(frozen=True)
class Bucket:
    """Pieces that travel as one message from a process to each of the others."""

    source: int
    targets: tuple[int, ...]
    pieces: tuple[Piece, ...]
    size: int
    """Bytes, gaps between pieces included."""


def plan(
    shares: Mapping[int, Share], widths: Mapping[str, int], bucket_bytes: int = BUCKET_BYTES
) -> list[Bucket]:
    """The buckets of one version, by source, in the order in which each sends them.

    `widths` are the bytes of an element of each tensor. A bucket is larger than `bucket_bytes` only
    where a row of a tensor is. Raises NotHeldError if a process wants what none holds.
    """
    holds = {rank: share.holds for rank, share in shares.items() if share.holds}
    wants = {rank: share.wants for rank, share in shares.items() if share.wants}
    routes: defaultdict[tuple[int, tuple[int, ...]], list[Piece]] = defaultdict(list)
    for source, targets, piece in _routed(transfers(holds, wants), holds):
        rows = max(1, min(PIECE_BYTES, bucket_bytes) // _row_bytes(piece, widths))
        routes[source, targets].extend(_cut(piece, rows))
    return [
        Bucket(source, targets, tuple(pieces), size)
        for (source, targets), found in sorted(routes.items(), key=lambda route: route[0])
        for pieces, size in _packed(found, widths, bucket_bytes)
    ]


def _routed(
    moves: Iterable[Transfer], holds: Mapping[int, Sequence[Held]]
) -> Iterator[tuple[int, tuple[int, ...], Piece]]:
    """(sender, receivers, piece): one piece where several receive the same."""
    same: defaultdict[tuple[int, int, Box], list[Transfer]] = defaultdict(list)
    for move in moves:
        same[move.src, move.src_array, move.src_box].append(move)
    for (source, array, inner), found in same.items():
        held = holds[source][array]
        ends = tuple(End(move.dst_array, move.dst_box) for move in found)
        receivers = tuple(move.dst for move in found)
        piece = Piece(held.tensor, inner.moved(held.box.low), End(array, inner), ends)
        yield source, receivers, piece


def _row_bytes(piece: Piece, widths: Mapping[str, int]) -> int:
    return widths[piece.tensor] * piece.box.size // piece.box.shape[0]


def _cut(piece: Piece, rows: int) -> Iterator[Piece]:
    """The same elements, at most so many rows at a time."""
    height = piece.box.shape[0]
    for first in range(0, height, rows):
        last = min(height, first + rows)
        ends = tuple(End(end.array, end.box.rows(first, last)) for end in piece.targets)
        source = End(piece.source.array, piece.source.box.rows(first, last))
        yield replace(piece, box=piece.box.rows(first, last), source=source, targets=ends)


def _packed(
    pieces: Iterable[Piece], widths: Mapping[str, int], limit: int
) -> Iterator[tuple[list[Piece], int]]:
    """(pieces, bytes) of bucket after bucket, each filled as far as the next piece fits."""
    bucket: list[Piece] = []
    end = 0
    for piece in pieces:
        size = piece.box.size * widths[piece.tensor]
        begin = -(-end // _ALIGNED) * _ALIGNED
        if bucket and begin + size > limit:
            yield bucket, end
            bucket, begin = [], 0
        bucket.append(replace(piece, begin=begin))
        end = begin + size
    if bucket:
        yield bucket, end
