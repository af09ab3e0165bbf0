"""The roofline of Williams, Waterman and Patterson (2009): what bounds each stage, and how far.

The estimate holds the shares that a stage reaches of its GPUs' FLOP/s (`mfu`) and bytes/s (`mbu`),
so that the roof's corner, where both peaks take as long, lies at (flops / bytes) * (mbu / mfu).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from xml.etree.ElementTree import Element

from rpeg.tools.report.axes import Scale, across, upward
from rpeg.tools.report.colours import stage_colours, swatch
from rpeg.tools.report.figures import Figure
from rpeg.tools.report.markup import drawing, hint, path, short, shown, tag
from rpeg.tools.report.quantities import flops, seconds, share, size
from rpeg.tools.report.spread import spread

WIDTH, LEFT, PLOT_END, TOP, BOTTOM = 760.0, 60.0, 590.0, 24.0, 36.0
NAMES = 626.0
"""Where the stages' names begin."""
LINE = 16.0
LEAST_HEIGHT = 300.0


def draw_roofline(section: Element, estimate: Figure) -> None:
    """Draws the stages that compute and move bytes; a table of all stages under it."""
    points = [s for s in estimate["stages"] if all(s[k].number > 0 for k in _NEEDED)]
    if points:
        _Roofline(points, stage_colours(estimate)).onto(section)
    _table(section, estimate)


_NEEDED = ("flops", "bytes", "mfu", "mbu")


def intensity(stage: Figure) -> float:
    """FLOPs for each byte of memory traffic."""
    return stage["flops"].number / stage["bytes"].number


def corner(stages: Sequence[Figure]) -> float:
    """FLOPs per byte at which peak FLOP/s and peak bytes/s take equally long."""
    return median(intensity(s) * s["mbu"].number / s["mfu"].number for s in stages)


def _percent(part: float) -> str:
    return f"{100 * part:g} %"


class _Roofline:
    def __init__(self, stages: Sequence[Figure], colours: dict[str, str]) -> None:
        self.stages = sorted(stages, key=lambda stage: -stage["mfu"].number)
        self.colours, self.corner = colours, corner(stages)
        self.height = max(LEAST_HEIGHT, TOP + BOTTOM + LINE * len(stages))
        reach = [*map(intensity, stages), self.corner]
        low, high = _decades(min(reach) / 2, max(reach) * 2)
        least = min([s["mfu"].number for s in stages] + [low / self.corner])
        self.x = Scale(low, high, LEFT, PLOT_END, logarithmic=True)
        bottom = self.height - BOTTOM
        self.y = Scale(_decades(least, 1)[0], 1.0, bottom, TOP, logarithmic=True)

    def onto(self, section: Element) -> None:
        svg = drawing(section, WIDTH, self.height, "roofline: share of peak by FLOPs a byte")
        across(svg, self.x, TOP, self.height - BOTTOM, "FLOPs a byte of memory traffic")
        upward(svg, self.y, LEFT, PLOT_END, "share of peak FLOP/s", written=_percent)
        tag(svg, "path", d=path(self._roof()), class_="roof")
        wanted = [self.y(stage["mfu"].number) for stage in self.stages]
        lowest = self.height - BOTTOM
        places = spread(wanted, [LINE] * len(wanted), TOP + 4, lowest)
        for stage, place in zip(self.stages, places, strict=True):
            self._stage(svg, stage, place)

    def _roof(self) -> list[tuple[float, float]]:
        """Memory's slope, from the left edge or the lower one, and the flat of the FLOP/s."""
        start = max(self.x.low, self.y.low * self.corner)
        ends = ((start, start / self.corner), (self.corner, 1.0), (self.x.high, 1.0))
        return [(self.x(x), self.y(y)) for x, y in ends]

    def _stage(self, svg: Element, stage: Figure, place: float) -> None:
        x, y = self.x(intensity(stage)), self.y(stage["mfu"].number)
        tag(svg, "path", d=path([(x, y), (PLOT_END + 8, place), (NAMES - 4, place)]), class_="lead")
        colour = self.colours[stage["stage"].text]
        dot = tag(svg, "circle", cx=x, cy=y, r=5, class_=f"dot {colour}")
        dot.attrib.update(stage["mfu"].attributes)
        hint(dot, f"{stage['stage'].text}: {share(stage['mfu'].number)} of peak FLOP/s")
        name = short(stage["stage"].text, WIDTH - NAMES)
        tag(svg, "text", name, x=NAMES, y=place + 4, class_="name")


def _decades(low: float, high: float) -> tuple[float, float]:
    """The powers of ten around a range."""
    return 10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(high))


def _table(section: Element, estimate: Figure) -> None:
    table = tag(tag(section, "div", class_="wide"), "table")
    head = tag(tag(table, "thead"), "tr")
    for title in ("stage", "pool", "seconds", "FLOPs", "bytes", "of FLOP/s", "of bytes/s"):
        tag(head, "th", title, scope="col")
    body, colours = tag(table, "tbody"), stage_colours(estimate)
    for stage in estimate["stages"]:
        row = tag(body, "tr")
        name = tag(row, "th", scope="row")
        swatch(name, colours[stage["stage"].text])
        shown(name, "span", stage["stage"], class_="name")
        shown(row, "td", stage["pool"])
        for key, unit in _COLUMNS.items():
            shown(row, "td", stage[key], unit, class_="number")


_COLUMNS = {"seconds": seconds, "flops": flops, "bytes": size, "mfu": share, "mbu": share}
