"""Where the elements of a Megatron-Core parameter lie in whole Hugging Face tensors.

A parameter, or the flat part of it that a distributed optimizer owns, is cut into rectangles, each
a rectangle of one Hugging Face tensor. The rectangles are views: to read or write them is to read
or write the parameter. So a state is stored in a form that no layout has left a mark on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from rpeg.sharding.decoder import Split, Unit


@dataclass(frozen=True)
class Piece:
    """A rectangle of a Hugging Face tensor."""

    source: str
    """The tensor's name."""
    offset: tuple[int, ...]
    """Where the rectangle begins in it."""
    data: Tensor
    """Its elements: a view of the parameter."""


def pieces(split: Split, unit: Unit, rank: int, flat: Tensor, begin: int) -> Iterator[Piece]:
    """The rectangles of `flat`: elements [begin, begin + len(flat)) of a parameter on a rank of the
    tensor-parallel group, row by row. Padding rows of a vocabulary are left out.
    """
    for low, high, held in split.rectangles(unit, rank, begin, begin + len(flat)):
        data = flat[low - begin : high - begin].view(held.box.shape)
        yield Piece(held.tensor, held.box.low, data)
