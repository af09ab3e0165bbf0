"""Sequences laid end to end without padding, and the rectangles in which attention sees them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

NARROWEST = 0.75
"""A rectangle holds no sequence shorter than this part of its longest."""


@dataclass(frozen=True)
class Packing:
    """Where the tokens of packed sequences are, among the cells of one or more rectangles.

    Sequences of similar lengths share a rectangle, right-padded: causal attention needs no mask.
    """

    places: Tensor
    """[tokens] int64: each token's position in its sequence."""
    shapes: tuple[tuple[int, int], ...]
    """(sequences, longest) of each rectangle."""
    tokens: Tensor
    """[cells] int64: the token in each cell of all rectangles; padding cells repeat one."""
    cells: Tensor
    """[tokens] int64: the first cell that holds each token."""
    padding: Tensor
    """[padding cells] int64: the others."""

    @staticmethod
    def of(lengths: Sequence[int]) -> Packing:
        """Sequences of these lengths, in this order."""
        sizes = torch.tensor(lengths)
        firsts = sizes.cumsum(0) - sizes
        parts = [_rectangle(firsts[rows], sizes[rows]) for rows in _alike(sizes)]
        tokens = torch.cat([tokens.flatten() for tokens, _ in parts])
        filled = torch.cat([filled.flatten() for _, filled in parts])
        cells = torch.empty(int(sizes.sum()), dtype=torch.long)
        cells[tokens[filled]] = filled.nonzero().flatten()
        return Packing(
            places=torch.cat([torch.arange(length) for length in lengths]),
            shapes=tuple((len(tokens), tokens.shape[1]) for tokens, _ in parts),
            tokens=tokens,
            cells=cells,
            padding=(~filled).nonzero().flatten(),
        )

    @property
    def is_rectangle(self) -> bool:
        """The tokens are the cells of one rectangle, in order."""
        return len(self.shapes) == 1 and not len(self.padding)

    def to(self, device: torch.device) -> Packing:
        """The same on another device."""
        parts = ("places", "tokens", "cells", "padding")
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
    """A gather in both directions: padding cells have no say in the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, packing: Packing) -> Tensor:
        ctx.packing = packing
        return x.index_select(0, packing.tokens)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0].index_select(0, ctx.packing.cells), None


class _Collect(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, cells: Tensor, packing: Packing) -> Tensor:
        ctx.packing = packing
        return cells.index_select(0, packing.cells)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        spread = gradients[0].index_select(0, ctx.packing.tokens)
        return spread.index_fill_(0, ctx.packing.padding, 0.0), None


def _alike(sizes: Tensor) -> Iterator[Tensor]:
    """Which sequences share a rectangle: all, or runs of the longest first."""
    if int(sizes.min()) >= NARROWEST * int(sizes.max()):
        yield torch.arange(len(sizes))
        return
    order = sizes.argsort(descending=True, stable=True)
    while len(order):
        count = int((sizes[order] >= NARROWEST * sizes[order[0]]).sum())
        yield order[:count]
        order = order[count:]


def _rectangle(firsts: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
    """(token, whether it is one of the sequence's), both [sequences, longest]."""
    steps = torch.arange(int(sizes.max()))
    filled = steps < sizes.unsqueeze(1)
    return firsts.unsqueeze(1) + torch.minimum(steps, sizes.unsqueeze(1) - 1), filled
