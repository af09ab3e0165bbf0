"""Sequences laid end to end without padding, and the rectangles in which attention sees them.

Sequences may share tokens: a prompt is packed once for all its completions. What a layer computes
of a token is the same in each of them, for no token sees a later one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Ints = NDArray[np.int64]

NARROWEST = 0.75
"""A rectangle holds no sequence shorter than this part of its longest."""


@dataclass(frozen=True)
class Packing:
    """Where the tokens of packed sequences are, among the cells of one or more rectangles.

    Sequences of similar lengths share a rectangle, right-padded: causal attention needs no mask.
    """

    places: Tensor
    """[tokens] int64: each token's position in its sequences."""
    shapes: tuple[tuple[int, int], ...]
    """(sequences, longest) of each rectangle."""
    tokens: Tensor
    """[cells] int64: the token in each cell of all rectangles; padding cells hold some other."""
    cells: Tensor
    """[tokens] int64: the first cell that holds each token."""
    again: Tensor
    """Cells that hold a token again, int64."""
    padding: Tensor
    """Cells that hold padding, int64."""

    @staticmethod
    def of(sequences: Ints, sizes: Ints) -> Packing:
        """Sequences of tokens, each a number in 0..tokens-1: of each row [k, longest], as many as
        `sizes` [k] says.
        """
        parts = [_rectangle(sequences[rows], sizes[rows]) for rows in _alike(sizes)]
        tokens = np.concatenate([tokens.ravel() for tokens, _ in parts])
        filled = np.concatenate([filled.ravel() for _, filled in parts]).nonzero()[0]
        columns = np.concatenate([np.tile(np.arange(t.shape[1]), len(t)) for t, _ in parts])
        cells = np.empty(tokens.max() + 1, dtype=np.int64)
        cells[tokens[filled[::-1]]] = filled[::-1]  # of several cells, the first stays
        others = np.ones(len(tokens), dtype=bool)
        others[cells] = False
        again = filled[others[filled]]
        others[filled] = False
        return Packing(
            places=torch.from_numpy(columns[cells]),
            shapes=tuple((len(tokens), tokens.shape[1]) for tokens, _ in parts),
            tokens=torch.from_numpy(tokens),
            cells=torch.from_numpy(cells),
            again=torch.from_numpy(again),
            padding=torch.from_numpy(others.nonzero()[0]),
        )

    @property
    def is_rectangle(self) -> bool:
        """The tokens are the cells of one rectangle, in order."""
        return len(self.shapes) == 1 and len(self.cells) == len(self.tokens)

    def to(self, device: torch.device) -> Packing:
        """The same on another device."""
        parts = ("places", "tokens", "cells", "again", "padding")
        return replace(self, **{part: getattr(self, part).to(device) for part in parts})

    def spread(self, x: Tensor) -> Iterator[Tensor]:
        """x [tokens, ...] as rectangles [sequences, longest, ...]."""
        if not self.is_rectangle:
            x = _Spread.apply(x, self)  # type: ignore[no-untyped-call]
        parts = x.split([rows * width for rows, width in self.shapes])
        for part, shape in zip(parts, self.shapes, strict=True):
            yield part.view(*shape, *x.shape[1:])

    def collect(self, rectangles: Sequence[Tensor]) -> Tensor:
        """The [tokens, ...] of rectangles [sequences, longest, ...]: what `spread` undoes."""
        if self.is_rectangle:
            return rectangles[0].flatten(0, 1)
        cells = torch.cat([rectangle.flatten(0, 1) for rectangle in rectangles])
        result: Tensor = _Collect.apply(cells, self)  # type: ignore[no-untyped-call]
        return result


class _Spread(torch.autograd.Function):
    """A gather in both directions: few cells hold a token again, and padding has no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, packing: Packing) -> Tensor:
        ctx.packing = packing
        return x.index_select(0, packing.tokens)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (gradient,), packing = gradients, ctx.packing
        dx = gradient.index_select(0, packing.cells)
        again = gradient.index_select(0, packing.again)
        return dx.index_add_(0, packing.tokens[packing.again], again), None


class _Collect(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, cells: Tensor, packing: Packing) -> Tensor:
        ctx.packing = packing
        return cells.index_select(0, packing.cells)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (gradient,), packing = gradients, ctx.packing
        spread = gradient.index_select(0, packing.tokens)
        for unread in (packing.again, packing.padding):
            spread.index_fill_(0, unread, 0.0)
        return spread, None


def _alike(sizes: Ints) -> Iterator[Ints]:
    """Which sequences share a rectangle: all, or runs of the longest first."""
    if sizes.min() >= NARROWEST * sizes.max():
        yield np.arange(len(sizes))
        return
    order = np.argsort(-sizes, kind="stable")
    while len(order):
        count = (sizes[order] >= NARROWEST * sizes[order[0]]).sum()
        yield order[:count]
        order = order[count:]


def _rectangle(sequences: Ints, sizes: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """(token, whether it is one of the sequence's), both [sequences, longest]."""
    longest = sizes.max()
    filled = np.arange(longest) < sizes[:, None]
    return sequences[:, :longest] * filled, filled
