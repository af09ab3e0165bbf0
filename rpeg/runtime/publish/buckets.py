"""Buckets as bytes: pieces of arrays go in on one side, counted into a digest of what is sent, and
come out on the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from rpeg.runtime.publish.digest import Digest, digest, nothing
from rpeg.runtime.publish.plan import Bucket, Piece

Types = Mapping[str, torch.dtype]
"""Element types, by tensor."""


def empty(size: int) -> Tensor:
    """[size] bytes on the host; page-locked where there are GPUs."""
    return torch.empty(size, dtype=torch.uint8, pin_memory=torch.cuda.is_available())


def pack(bucket: Bucket, message: Tensor, arrays: Sequence[Tensor], types: Types) -> Digest:
    """Copies the bucket's pieces from the sender's arrays into its bytes; their digest."""
    total = nothing()
    for piece in bucket.pieces:
        view = _view(piece, message, types)
        view.copy_(arrays[piece.source.array][piece.source.box.slices])
        total += digest(piece.tensor, piece.box, view)
    return total


def unpack(
    bucket: Bucket, message: Tensor, place: int, arrays: Sequence[Tensor], types: Types
) -> None:
    """Copies the pieces from the bytes into the arrays of receiver number `place`."""
    for piece in bucket.pieces:
        end = piece.targets[place]
        arrays[end.array][end.box.slices].copy_(_view(piece, message, types))


def stretch(bucket: Bucket, place: int, arrays: Sequence[Tensor]) -> Tensor | None:
    """[bytes] of the arrays of receiver number `place`, if the bucket's bytes are just those and
    lie on the host.
    """
    first, last = bucket.pieces[0].targets[place], bucket.pieces[-1].targets[place]
    array = arrays[first.array]
    if not bucket.in_place or array.is_cuda:
        return None
    return array[first.box.low[0] : last.box.high[0]].view(-1).view(torch.uint8)


def _view(piece: Piece, message: Tensor, types: Types) -> Tensor:
    dtype = types[piece.tensor]
    part = message[piece.begin : piece.begin + piece.box.size * dtype.itemsize]
    return part.view(dtype).view(piece.box.shape)
