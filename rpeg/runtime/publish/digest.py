"""A digest of weights that does not depend on how they are spread over processes.

Every element's bits count once, times an odd number that its place in the whole tensor gives. So
the digests of the parts of a model add up to that of the whole, whoever holds the parts, and the
sender of a part can say what its receiver is to find. One changed element always shows; other
damage goes unseen with a probability of 2^-64 and less. It is no defence against forgery.

The factor of an element is the sum of one number for each of its indices: the sums of the bits
along each axis are then all that is multiplied, and those run at the speed of memory.
"""

from __future__ import annotations

import functools
import hashlib
import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rpeg.sharding.boxes import Box

WORDS = 4
"""Independent sums, of which each has the width of an element."""

Digest = npt.NDArray[np.uint64]
"""[WORDS]: digests of parts are added, modulo 2^64, to that of the parts together."""

Part = tuple[str, Box, Tensor]
"""A name, and of that tensor the part in a box."""

_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integer types by their bytes: sums wrap round within the width of an element."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def nothing() -> Digest:
    """The digest of no elements."""
    return np.zeros(WORDS, dtype=np.uint64)


def digest(name: str, box: Box, values: Tensor) -> Digest:
    """The digest of the part `box` of the tensor `name`; `values` have the box's shape, on any
    device.
    """
    return _digest([(name, box, values)], values.element_size())


def shown(total: Digest) -> str:
    """The digest as 32 hexadecimal digits."""
    return hashlib.blake2b(total.tobytes(), digest_size=16).hexdigest()


def odd_numbers(count: int) -> Digest:
    """[count]: those of the first indices along the first axis, in the first sum."""
    first: Digest = _along_axis(0, 0, count)[0]
    return first


def checksum(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """The digest of whole tensors, in any order, as 32 hexadecimal digits."""
    by_size: defaultdict[int, list[Part]] = defaultdict(list)
    for name, tensor in tensors:
        box = Box.whole(tuple(tensor.shape))
        by_size[tensor.element_size()].append((name, box, tensor))
    return shown(sum((_digest(parts, size) for size, parts in by_size.items()), nothing()))


def _digest(parts: Sequence[Part], size: int) -> Digest:
    """The digest of parts whose elements have `size` bytes."""
    bits = [values.detach().view(_BITS[size]) for _, _, values in parts]
    sums = torch.cat([_along(b, axis) for b in bits for axis in range(b.dim())])
    factors = _factors(tuple((name, box) for name, box, _ in parts))
    total: Digest = factors @ sums.cpu().numpy().astype(np.uint64)
    return total << np.uint64(64 - 8 * size)


def _along(bits: Tensor, axis: int) -> Tensor:
    """Sums of all elements that share an index of `axis`."""
    others = [k for k in range(bits.dim()) if k != axis]
    return bits.sum(dim=others, dtype=bits.dtype) if others else bits


@functools.lru_cache(maxsize=16)
def _factors(parts: tuple[tuple[str, Box], ...]) -> Digest:
    """[WORDS, sum of the widths of all boxes]: box by box, those of the indices along each axis,
    times that of the tensor's name.
    """
    return np.hstack(
        [
            _along_axis(axis, *ends) * _of_name(name)[:, None]
            for name, box in parts
            for axis, ends in enumerate(zip(box.low, box.high, strict=True))
        ]
    )


def _along_axis(axis: int, low: int, high: int) -> Digest:
    """[WORDS, high - low]: odd for the first axis and even for the others, so that their sum is
    odd.
    """
    return _table(axis, 1 << max(8, (high - 1).bit_length()))[:, low:high]


@functools.cache
def _table(axis: int, size: int) -> Digest:
    places = np.arange(WORDS * size, dtype=np.uint64).reshape(size, WORDS).T
    mixed = _mix(places + np.uint64((axis + 1) << 48))
    return (mixed << np.uint64(1)) | np.uint64(axis == 0)


@functools.cache
def _of_name(name: str) -> Digest:
    """[WORDS], odd."""
    places = np.arange(WORDS, dtype=np.uint64) + (np.uint64(zlib.crc32(name.encode())) << 8)
    return _mix(places) | np.uint64(1)


def _mix(x: Digest) -> Digest:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014)."""
    x = (x + np.uint64(1)) * _GOLDEN
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
