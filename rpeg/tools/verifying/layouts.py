"""Which layouts a pipeline is verified under."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import lcm
from typing import Any

from rpeg.divisibility import Counts, misfits
from rpeg.passes.layout_names import LayoutNameError, own_layouts, parse_layout
from rpeg.passes.rpeg_annotate_parallelism import RpegAnnotateParallelismPass
from rpeg.tools.console import USAGE, Failure

ONE_PROCESS = "dp1"
USUAL = ("tp2", "tp2sp", "pp2", "pp2vpp2", "dp2", "dp2zero1", "tp2pp2")
"""Those that are tried where none are named, as far as they can split the models."""
_MINIBATCHES = 2


@dataclass(frozen=True)
class Chosen:
    """What one pipeline is verified under."""

    layouts: tuple[str, ...]
    """One process first."""
    refused: Mapping[str, str]
    """By name of a wanted layout: why it can't be made of this pipeline."""
    notes: tuple[str, ...] = ()
    """Of the usual ones that don't fit."""


def check_names(wanted: Sequence[str]) -> None:
    """Raises Failure for a name that is not a layout, or of one that contradicts itself."""
    for name in wanted:
        try:
            settings: dict[str, Any] = parse_layout(name)
        except LayoutNameError as error:
            raise Failure(str(error), USAGE) from None
        problems = RpegAnnotateParallelismPass(**settings).problems()
        if problems:
            raise Failure(f"`{name}`: {'; '.join(problems)}", USAGE)


def chosen(wanted: Sequence[str] | None, models: Mapping[str, Counts]) -> Chosen:
    """The wanted layouts, or the usual ones, as far as they can be made of these models."""
    names = dict.fromkeys(USUAL if wanted is None else wanted)
    why = {name: "; ".join(dict.fromkeys(_why_not(name, models))) for name in names}
    layouts = tuple(dict.fromkeys([ONE_PROCESS, *(name for name in names if not why[name])]))
    left_out = {name: reason for name, reason in why.items() if reason}
    if wanted is not None:
        return Chosen(layouts, left_out)
    notes = (f"not tried: {name}, {reason.partition(':')[0]}" for name, reason in left_out.items())
    return Chosen(layouts, {}, tuple(notes))


def refuse_useless(found: Sequence[Chosen]) -> None:
    """Raises Failure for a wanted layout that can be made of none of the pipelines."""
    useless = {
        name: reason
        for name, reason in found[0].refused.items()
        if all(name in each.refused for each in found)
    }
    if useless:
        raise Failure("; ".join(f"{name}: {reason}" for name, reason in useless.items()))


def rows_divisor(layouts: Sequence[str]) -> int:
    """What the rows of a batch must divide by: every data-parallel width, and two minibatches."""
    return lcm(_MINIBATCHES, *(width for name in layouts for width in _widths(name)))


def _why_not(name: str, models: Mapping[str, Counts]) -> Iterator[str]:
    """Each model, under the layout of its own or under that of all."""
    whole = parse_layout(name)
    own = own_layouts(whole.get("others"))
    for title in own:
        if title not in models:
            yield f"there is no model `{title}`; the pipeline has: {', '.join(models)}"
    for title, counts in models.items():
        held = own.get(title, whole)
        tp, pp, vpp = (int(held.get(axis, 1)) for axis in ("tp", "pp", "vpp"))
        yield from misfits(counts, tp=tp, pp=pp, vpp=vpp)


def _widths(name: str) -> list[int]:
    """Data-parallel ones: of the layout for everything, and of those that models have."""
    whole = parse_layout(name)
    held = [whole, *own_layouts(whole.get("others")).values()]
    return [int(settings.get("dp", 1)) for settings in held]
