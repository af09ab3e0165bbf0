"""How the rows of a batch get from the shares of one pool to those of another.

Every pool splits a batch evenly, in order, over its data-parallel shares: of width a on one side
and b on the other, each share is cut where the other side's shares meet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from rpeg.runtime.errors import LayoutFailure
from rpeg.runtime.selection import join
from rpeg.runtime.trajectories import Demos, Pairs, Prompts, Trajectories
from rpeg.sharding.boxes import Box, Held, Transfer, transfers

Shares = Mapping[int, tuple[int, int]]
"""Process -> (index, width): which share of every batch it holds."""

Fields = Tensor | Trajectories | Prompts | Demos | Pairs
"""What has rows."""

Rows = TypeVar("Rows", Prompts, Demos, Pairs)


def routes(source: Shares, target: Shares) -> list[Transfer]:
    """Who sends which part of its share to whom, in units of 1/(a b) of the batch and in its order.

    Of processes that hold the same share, each serves some of those that need it.
    """
    width = {held[1] for held in source.values()}, {held[1] for held in target.values()}
    (a,), (b,) = width
    plan = transfers(_units(source, b), _units(target, a))
    return sorted(plan, key=lambda route: (route.dst, route.dst_box.low))


def _units(shares: Shares, each: int) -> dict[int, list[Held]]:
    return {
        rank: [Held("rows", Box((index * each,), ((index + 1) * each,)))]
        for rank, (index, _) in shares.items()
    }


def cut(value: Any, route: Transfer, units: int) -> Any:
    """The part of a share of `units` units that a route takes; of what has no rows, all.

    Raises LayoutFailure if the parts aren't whole prompts.
    """
    if not isinstance(value, Fields):
        return value
    size, together = _size(value)
    bounds = [bound[0] * size for bound in (route.src_box.low, route.src_box.high)]
    if any(bound % (units * together) for bound in bounds):
        raise LayoutFailure(
            f"a share of {size // together} rows does not divide among the {units} data-parallel "
            "shares of another pool or model: change the batch's size, or `dp` of one of them"
        )
    return _slice(value, bounds[0] // units, bounds[1] // units)


def _size(value: Fields) -> tuple[int, int]:
    """(rows, how many of them stay together)."""
    match value:
        case Tensor():
            return len(value), 1
        case Trajectories():
            return len(value.rows), value.n
        case Pairs():
            return len(value.rows), 2
        case _:
            return len(value.rows), 1


def _slice(value: Fields, low: int, high: int) -> Fields:
    match value:
        case Tensor():
            return value[low:high].detach().cpu()
        case Trajectories():
            return value.select(torch.arange(low, high))
        case _:
            return replace(value, rows=value.rows[low:high], ordinals=value.ordinals[low:high])


def joined(parts: Sequence[Any]) -> Any:
    """A share, of its parts in order; of what has no rows, the first."""
    first = parts[0]
    match first:
        case Tensor():
            return torch.cat(list(parts))
        case Trajectories():
            return join(parts)
        case Prompts() | Demos() | Pairs():
            return _joined_rows(parts)
        case _:
            return first


def _joined_rows(parts: Sequence[Rows]) -> Rows:
    rows = tuple(row for part in parts for row in part.rows)
    return replace(parts[0], rows=rows, ordinals=torch.cat([part.ordinals for part in parts]))
