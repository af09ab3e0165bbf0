"""Which rows train together: minibatches that no layout changes, cut into micro-batches."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from rpeg.runtime.errors import LayoutFailure
from rpeg.runtime.layout import MicroBatch


def minibatches(
    shares: Sequence[int], mine: int, count: int, *, shuffle: bool, seeds: Sequence[int]
) -> list[Tensor]:
    """Local rows of each of `count` minibatches, for the process with share `mine`.

    `shares` are the sizes of all processes' shares, which in order make up the batch. A minibatch
    is the same set of rows of the batch for every data-parallel width; a process trains those of
    its own that are in it, possibly none. Raises LayoutFailure if there are fewer rows than
    minibatches.
    """
    total = sum(shares)
    if count > total:
        raise LayoutFailure(f"{total} samples can't make {count} minibatches; lower `minibatches`")
    order = _permutation(total, seeds) if shuffle else torch.arange(total)
    first = sum(shares[:mine])
    local = [part - first for part in order.tensor_split(count)]
    return [part[(part >= 0) & (part < shares[mine])] for part in local]


def _permutation(total: int, seeds: Sequence[int]) -> Tensor:
    digest = hashlib.blake2b(repr(tuple(seeds)).encode(), digest_size=8).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest, "little"))
    return torch.randperm(total, generator=generator)


def microbatches(rows: Tensor, lengths: Tensor, bound: MicroBatch) -> Iterator[list[int]]:
    """`rows` [k] in micro-batches within `bound`, longest rows first so that little is padded.

    `lengths` [samples] are the model inputs of every row. Without a bound there is one micro-batch,
    in the given order.
    """
    if bound.tokens is None and bound.seqs is None:
        yield rows.tolist()
        return
    order = rows[lengths[rows].argsort(descending=True, stable=True)].tolist()
    while order:
        size = min(bound.seqs or len(order), len(order))
        if bound.tokens is not None:
            size = min(size, max(1, bound.tokens // int(lengths[order[0]])))
        yield order[:size]
        order = order[size:]
