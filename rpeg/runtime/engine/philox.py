"""Random numbers as a pure function of their coordinates: Philox4x32-10 (Salmon et al., SC 2011).

No state is kept anywhere: the same coordinates give the same bits on every layout, in any order.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rpeg.runtime.numerics.blocks import blocks

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = 0xFFFFFFFF

Words = TypeVar("Words", Tensor, NDArray[np.int64])
"""int64, of which the low 32 bits count; on the host numpy is faster than torch with so few."""


def philox(
    counter: tuple[Words, Words, Words, Words], key: tuple[int, int]
) -> tuple[Words, Words, Words, Words]:
    """Four 32-bit words, as int64, for every counter; the counters broadcast against each other."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        first, second = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c2 = _mixed(second, c1, k0), _mixed(first, c3, k1)
        # Their low halves; what stands above them is cut off once they have been mixed.
        c1, c3 = second, first
        k0, k1 = (k0 + _WEYL[0]) & _LOW, (k1 + _WEYL[1]) & _LOW
    return c0, c1 & _LOW, c2, c3 & _LOW


def _mixed(product: Words, word: Words, key: int) -> Words:
    """The high 32 bits of a 64-bit product, which int64 keeps as it wraps, mixed with the low ones
    of a word and a key.
    """
    mixed = (product >> 32) ^ word
    mixed ^= key
    mixed &= _LOW
    return mixed


def _words(
    counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[int, int]
) -> tuple[Tensor, ...]:
    """The same of tensors on any device."""
    if counter[0].device.type != "cpu":
        return philox(counter, key)
    c0, c1, c2, c3 = (words.numpy() for words in counter)
    return tuple(map(torch.from_numpy, philox((c0, c1, c2, c3), key)))


def gumbel(
    ordinals: Tensor, samples: Tensor, positions: range, vocab: int, *, run_seed: int, seed: int
) -> Tensor:
    """Standard Gumbel noise [rows, len(positions), vocab] float32 for each possible next token.

    Coordinates: key = (run seed, seed of the operation), counter = (vocabulary id / 4, position,
    sample index, prompt ordinal), word = vocabulary id mod 4. `ordinals` and `samples` are [rows].
    """
    device = ordinals.device
    fours = -(-vocab // 4)
    ids = torch.arange(fours, device=device)[None, None, :]
    places = torch.arange(positions.start, positions.stop, device=device)[None, :, None]
    noise = torch.empty(len(ordinals), len(positions), fours, 4, device=device)
    for rows in blocks(noise):
        counter = ids, places, samples[rows, None, None], ordinals[rows, None, None]
        for k, words in enumerate(_words(counter, (run_seed & _LOW, seed & _LOW))):
            uniform = words.double().add_(0.5).mul_(2.0**-32)
            # Next to 1 float32 is too coarse for the first logarithm; its results it tells apart.
            noise[rows, ..., k] = uniform.log_().neg_()
    noise.log_().neg_()
    return noise.flatten(-2)[..., :vocab]
