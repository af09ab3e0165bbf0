"""What goes from which process to which, in buckets: the same list on every process.

Each process says which boxes of which tensors it holds, and which it wants. Intersecting them gives
the transfers (`rpeg.sharding.boxes`); those that leave one process for the same others are cut into
pieces and packed, end to end, into buckets. A large piece that its receivers hold in one stretch
has a bucket to itself, which needs no unpacking.
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
LARGE_BYTES = MIB // 4
"""From this size on, a bucket of one piece is worth a message of its own."""
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
    in_place: bool = False
    """Its bytes are, in order and without gaps, a stretch of each receiver's array."""


Route = tuple[int, tuple[int, ...]]
"""Sender, receivers."""


def plan(
    shares: Mapping[int, Share], widths: Mapping[str, int], bucket_bytes: int = BUCKET_BYTES
) -> list[Bucket]:
    """The buckets of one version, by source, in the order in which each sends them.

    `widths` are the bytes of an element of each tensor. A bucket is larger than `bucket_bytes` only
    where a row of a tensor is. Raises NotHeldError if a process wants what none holds.
    """
    holds = {rank: share.holds for rank, share in shares.items() if share.holds}
    wants = {rank: share.wants for rank, share in shares.items() if share.wants}
    routes: defaultdict[Route, list[Piece]] = defaultdict(list)
    for route, piece in _routed(transfers(holds, wants), holds):
        routes[route].append(piece)
    return [
        bucket
        for route, pieces in sorted(routes.items(), key=lambda item: item[0])
        for bucket in _buckets(route, pieces, widths, wants, bucket_bytes)
    ]


def _routed(
    moves: Iterable[Transfer], holds: Mapping[int, Sequence[Held]]
) -> Iterator[tuple[Route, Piece]]:
    """One piece where several processes receive the same."""
    same: defaultdict[tuple[int, int, Box], list[Transfer]] = defaultdict(list)
    for move in moves:
        same[move.src, move.src_array, move.src_box].append(move)
    for (source, array, inner), found in same.items():
        held = holds[source][array]
        ends = tuple(End(move.dst_array, move.dst_box) for move in found)
        receivers = tuple(move.dst for move in found)
        piece = Piece(held.tensor, inner.moved(held.box.low), End(array, inner), ends)
        yield (source, receivers), piece


def _buckets(
    route: Route,
    pieces: Iterable[Piece],
    widths: Mapping[str, int],
    wants: Mapping[int, Sequence[Held]],
    limit: int,
) -> Iterator[Bucket]:
    """A large stretch has its own; all others share theirs."""
    source, targets = route
    others: list[Piece] = []
    for piece in pieces:
        row = _row_bytes(piece, widths)
        small = max(1, min(PIECE_BYTES, limit) // row)
        if piece.box.shape[0] * row < LARGE_BYTES or not _is_stretch(piece, targets, wants):
            others.extend(_cut(piece, small))
            continue
        for part in _cut(piece, max(1, limit // row)):
            packed = tuple(
                replace(block, begin=k * small * row) for k, block in enumerate(_cut(part, small))
            )
            yield Bucket(source, targets, packed, part.box.shape[0] * row, in_place=True)
    for packed, size in _packed(others, widths, limit):
        yield Bucket(source, targets, packed, size)


def _is_stretch(piece: Piece, targets: Iterable[int], wants: Mapping[int, Sequence[Held]]) -> bool:
    """Whether it is whole rows of every receiver's array."""
    return all(
        end.box.shape[1:] == wants[rank][end.array].box.shape[1:]
        for rank, end in zip(targets, piece.targets, strict=True)
    )


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
) -> Iterator[tuple[tuple[Piece, ...], int]]:
    """(pieces, bytes) of bucket after bucket, each filled as far as the next piece fits."""
    bucket: list[Piece] = []
    end = 0
    for piece in pieces:
        size = piece.box.size * widths[piece.tensor]
        begin = -(-end // _ALIGNED) * _ALIGNED
        if bucket and begin + size > limit:
            yield tuple(bucket), end
            bucket, begin = [], 0
        bucket.append(replace(piece, begin=begin))
        end = begin + size
    if bucket:
        yield tuple(bucket), end
