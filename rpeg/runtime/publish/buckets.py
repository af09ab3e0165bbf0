"""Buckets as bytes: pieces of arrays go in on one side, come out on the other, and each piece is
counted into the digest of what passed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from rpeg.runtime.publish.digest import Digest, digest, nothing
from rpeg.runtime.publish.plan import Bucket, Piece

Types = Mapping[str, torch.dtype]
"""By tensor."""


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
) -> Digest:
    """Copies the pieces from the bytes into the arrays of receiver number `place`; their digest."""
    total = nothing()
    for piece in bucket.pieces:
        view, end = _view(piece, message, types), piece.targets[place]
        arrays[end.array][end.box.slices].copy_(view)
        total += digest(piece.tensor, piece.box, view)
    return total


def _view(piece: Piece, message: Tensor, types: Types) -> Tensor:
    dtype = types[piece.tensor]
    part = message[piece.begin : piece.begin + piece.box.size * dtype.itemsize]
    return part.view(dtype).view(piece.box.shape)
