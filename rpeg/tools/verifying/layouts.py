"""Which layouts a pipeline is verified under."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import lcm
from typing import Any

from rpeg.fit import Counts, misfits
from rpeg.passes.layout_names import LayoutNameError, own_layouts, parse_layout
from rpeg.passes.rpeg_annotate_parallelism import RpegAnnotateParallelismPass
from rpeg.tools.console import USAGE, Failure

ONE_PROCESS = "dp1"
USUAL = ("tp2", "tp2sp", "pp2", "pp2vpp2", "dp2", "dp2zero1", "tp2pp2")
"""Those that are tried where none are named, as far as they can split the models."""
_MINIBATCHES = 2


def check_names(wanted: Sequence[str]) -> None:
    """Raises Failure for a name that is no layout, or of one that contradicts itself."""
    for name in wanted:
        try:
            settings: dict[str, Any] = parse_layout(name)
        except LayoutNameError as error:
            raise Failure(str(error), USAGE) from None
        problems = RpegAnnotateParallelismPass(**settings).problems()
        if problems:
            raise Failure(f"`{name}`: {'; '.join(problems)}", USAGE)


def chosen(wanted: Sequence[str] | None, models: Sequence[Counts]) -> tuple[list[str], list[str]]:
    """(layouts, one process first; notes about those left out): the wanted ones, or the usual.

    Raises Failure for a wanted one that can't split the models.
    """
    if wanted:
        misfit = [f"{name}: {why}" for name in wanted for why in _why_not(name, models)]
        if misfit:
            raise Failure("; ".join(dict.fromkeys(misfit)))
        return list(dict.fromkeys([ONE_PROCESS, *wanted])), []
    why = {name: next(_why_not(name, models), None) for name in USUAL}
    notes = [
        f"not tried: {name}, {reason.partition(':')[0]}" for name, reason in why.items() if reason
    ]
    return [ONE_PROCESS, *(name for name in USUAL if why[name] is None)], notes


def rows_divisor(layouts: Sequence[str]) -> int:
    """What the rows of a batch must divide by: every data-parallel width, and two minibatches."""
    return lcm(_MINIBATCHES, *(width for name in layouts for width in _widths(name, "dp")))


def _why_not(name: str, models: Sequence[Counts]) -> Iterator[str]:
    """Each layout of the name, tried on every model."""
    for tp, pp, vpp in zip(*(_widths(name, axis) for axis in ("tp", "pp", "vpp")), strict=True):
        for counts in models:
            yield from misfits(counts, tp=tp, pp=pp, vpp=vpp)


def _widths(name: str, axis: str) -> list[int]:
    """Of the layout for everything, and of those that models have of their own."""
    whole = parse_layout(name)
    held = [whole, *own_layouts(whole.get("others")).values()]
    return [int(settings.get(axis, 1)) for settings in held]
