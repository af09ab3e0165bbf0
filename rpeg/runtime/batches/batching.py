"""Which rows train together: minibatches that no layout changes, cut into micro-batches."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Mapping, Sequence
from itertools import count

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


def together(units: Tensor, rows: int) -> Tensor:
    """The samples of units [k] that have `rows` samples each, side by side: [k x rows]."""
    if rows == 1:
        return units
    return (units.unsqueeze(1) * rows + torch.arange(rows)).flatten()


def microbatches(
    rows: Tensor, lengths: Tensor, bound: MicroBatch, rounds: int = 1, unit: int = 1
) -> list[list[int]]:
    """`rows` [k] in micro-batches of about the same size: as few as stay balanced within `bound`.

    `lengths` [samples] are the model inputs of every row. The number of micro-batches is a multiple
    of `rounds`; without a bound it is `rounds`. One is empty where there are not enough rows. The
    largest come first: if it does not fit into memory, that shows at once. `unit` rows, side by
    side in the batch, stay in one micro-batch, even past the bound.
    """
    if bound == MicroBatch() and rounds == 1:
        return [rows.tolist()]
    parts = _units(
        rows[::unit] // unit, lengths.view(-1, unit).sum(dim=1), bound.of_units(unit), rounds
    )
    return [together(torch.tensor(part, dtype=torch.long), unit).tolist() for part in parts]


def _units(rows: Tensor, lengths: Tensor, bound: MicroBatch, rounds: int) -> list[list[int]]:
    sizes = dict(zip(rows.tolist(), lengths[rows].tolist(), strict=True))
    tries = (balanced(sizes, n, bound.seqs) for n in count(_fewest(sizes, bound, rounds), rounds))
    return next(parts for parts in tries if all(_fits(part, sizes, bound) for part in parts))


def _fewest(sizes: Mapping[int, int], bound: MicroBatch, rounds: int) -> int:
    """A number of micro-batches, a multiple of `rounds`, below which the bound can't hold."""
    fewest = 1
    if bound.tokens is not None:
        fewest = max(fewest, -(-sum(min(s, bound.tokens) for s in sizes.values()) // bound.tokens))
    if bound.seqs is not None:
        fewest = max(fewest, -(-len(sizes) // bound.seqs))
    return -(-fewest // rounds) * rounds


def _fits(part: Sequence[int], sizes: Mapping[int, int], bound: MicroBatch) -> bool:
    """A row that is longer than the bound goes alone."""
    return bound.tokens is None or len(part) <= 1 or sum(sizes[r] for r in part) <= bound.tokens


def balanced(sizes: Mapping[int, int], n: int, most: int | None = None) -> list[list[int]]:
    """The rows in `n` parts of at most `most` rows, whose sums of sizes are about equal.

    Longest first, each to the lightest part with room: LPT (Graham 1969, doi:10.1137/0117039). The
    largest sum is at most 4/3 of the best possible where `most` does not bind. Parts come heaviest
    first, the rows of each in their order; ties go to the row and the part that come first.
    """
    parts: list[list[int]] = [[] for _ in range(n)]
    open_parts = [(0, part) for part in range(n)]
    loads = [0] * n
    place = {row: k for k, row in enumerate(sizes)}
    for row in sorted(sizes, key=lambda r: (-sizes[r], place[r])):
        load, part = heapq.heappop(open_parts)
        parts[part].append(row)
        loads[part] = load + sizes[row]
        if most is None or len(parts[part]) < most:
            heapq.heappush(open_parts, (loads[part], part))
    order = sorted(range(n), key=lambda part: (-loads[part], part))
    return [sorted(parts[part], key=place.__getitem__) for part in order]
