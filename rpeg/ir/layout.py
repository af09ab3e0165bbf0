"""Layouts: the widths of a `par` clause (L1) or a `Layout` record (L3), and their product."""

from __future__ import annotations

from math import prod

from rpeg.ir.attributes import RecordAttr
from rpeg.ir.settings import python_value

AXES = ("tp", "pp", "cp", "dp")
"""The axes whose widths multiply to the processes of a group."""


def width_of(layout: RecordAttr, axis: str) -> int:
    """The width of one axis; 1 where the record does not say."""
    value = python_value(layout.settings.get(axis))
    return value if isinstance(value, int) else 1


def size_of(layout: RecordAttr) -> int:
    """Processes of a layout: tp x pp x cp x dp."""
    return prod(width_of(layout, axis) for axis in AXES)
