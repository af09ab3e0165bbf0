"""Scales from values to places in a drawing, and the marks along them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from rpeg.tools.report.markup import tag
from rpeg.tools.report.quantities import plain

MARKS = 6
"""Steps of a linear axis, about."""
_ROUND = (1, 2, 5, 10)


@dataclass(frozen=True)
class Scale:
    """Where values lie between two ends of a drawing."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        low, high, value = (self._bent(v) for v in (self.low, self.high, value))
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def _bent(self, value: float) -> float:
        return math.log10(value) if self.logarithmic else value

    @property
    def marks(self) -> list[float]:
        """Round values between the ends: powers of ten, or steps of 1, 2 or 5 of them."""
        if self.logarithmic:
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            return [10.0**k for k in range(first, last + 1)]
        step = _step((self.high - self.low) / MARKS)
        first, last = math.ceil(self.low / step), math.floor(self.high / step * (1 + 1e-9))
        return [step * k for k in range(first, last + 1)]


def _step(about: float) -> float:
    """The least of 1, 2, 5 times a power of ten that is not below `about`."""
    power = 10.0 ** math.floor(math.log10(about))
    return power * next(factor for factor in _ROUND if factor * power >= about * (1 - 1e-9))


def across(svg: Element, scale: Scale, top: float, bottom: float, title: str) -> None:
    """Marks below a drawing, with lines up through it, and what they count under them."""
    for mark in scale.marks:
        x = scale(mark)
        tag(svg, "line", x1=x, x2=x, y1=top, y2=bottom, class_="grid")
        tag(svg, "text", plain(mark), x=x, y=bottom + 17, class_="tick middle")
    middle = (scale.start + scale.end) / 2
    tag(svg, "text", title, x=middle, y=bottom + 32, class_="tick middle")


def upward(
    svg: Element,
    scale: Scale,
    left: float,
    right: float,
    title: str,
    written: Callable[[float], str] = plain,
) -> None:
    """Marks left of a drawing, with lines through it, and what they count above them."""
    for mark in scale.marks:
        y = scale(mark)
        tag(svg, "line", x1=left, x2=right, y1=y, y2=y, class_="grid")
        tag(svg, "text", written(mark), x=left - 6, y=y + 4, class_="tick end")
    tag(svg, "text", title, x=4, y=14, class_="tick")
