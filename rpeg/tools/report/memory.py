"""Memory of the busiest GPU and host of each pool over one period."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from xml.etree.ElementTree import Element

from rpeg.tools.report.axes import Scale, across, upward
from rpeg.tools.report.figures import Figure
from rpeg.tools.report.markup import drawing, fill, path, shown, tag
from rpeg.tools.report.quantities import size

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 420.0, 210.0, 52.0, 10.0, 24.0, 36.0
HEADROOM = 1.08
LEAST_SHARE = 0.01
"""Of the capacity: a curve below it would be a line along the bottom."""
GIBI = 2.0**30

Points = list[tuple[float, float]]


def draw_memory(section: Element, estimate: Figure) -> None:
    """A chart and a table for the GPUs of each pool, and for its hosts."""
    parts = tag(section, "div", class_="charts")
    held = (row for row in estimate["memory"] if row["peak_bytes"].number)
    for (pool, kind), figures in groupby(sorted(held, key=_of), key=_of):
        rows = list(figures)
        figure = tag(parts, "figure")
        tag(figure, "figcaption", f"{pool}: " + ("a GPU" if kind == "gpu" else "a host"))
        if any(_share(row) > LEAST_SHARE for row in rows):
            _chart(figure, rows, estimate["period_s"].number)
        _table(figure, rows)


def _of(memory: Figure) -> tuple[str, str]:
    return memory["pool"].text, memory["kind"].text


def _chart(parent: Element, rows: Sequence[Figure], period: float) -> None:
    """The lengths with the highest peak filled, the others as lines."""
    most = max(rows, key=lambda row: row["peak_bytes"].number)
    capacity = most["capacity_bytes"]
    top = HEADROOM * max(capacity.number, most["peak_bytes"].number) / GIBI
    end = max([period, *(float(row["timeline"].value[-1][0]) for row in rows)])
    over, up = Scale(0.0, end, LEFT, WIDTH - RIGHT), Scale(0.0, top, HEIGHT - BOTTOM, TOP)
    svg = drawing(parent, WIDTH, HEIGHT, f"memory of {' '.join(_of(most))} over a period")
    across(svg, over, TOP, HEIGHT - BOTTOM, "seconds from the step's start")
    upward(svg, up, LEFT, WIDTH - RIGHT, "GiB")
    for row in rows:
        line = _steps(row["timeline"], end)
        points = [(over(x), up(y / GIBI)) for x, y in line]
        if row is most:
            points = [(points[0][0], up(0)), *points, (points[-1][0], up(0))]
        kind = "area" if row is most else "line"
        tag(svg, "path", d=path(points), class_=kind).attrib.update(row["timeline"].attributes)
    y = up(capacity.number / GIBI)
    tag(svg, "line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="mark")
    label = tag(svg, "text", x=WIDTH - RIGHT, y=14, class_="small end")
    label.text = f"capacity {size(capacity.number)}"
    label.attrib.update(capacity.attributes)


def _steps(timeline: Figure, end: float) -> Points:
    """Corners of what is held: each value lasts until the next."""
    held = [(float(x), float(y)) for x, y in timeline.value]
    corners: Points = []
    for k, (x, y) in enumerate(held):
        until = held[k + 1][0] if k + 1 < len(held) else end
        corners += [(x, y), (until, y)]
    return corners


def _table(parent: Element, rows: Sequence[Figure]) -> None:
    """A column for each quantile of lengths: the peak, and what is held then."""
    table = tag(parent, "table")
    head = tag(tag(table, "thead"), "tr")
    tag(head, "th", "lengths", scope="col")
    for row in rows:
        shown(head, "th", row["quantile"], scope="col", class_=_class(row))
    body = tag(table, "tbody")
    _line(body, "peak", [row["peak_bytes"] for row in rows], rows, "sum")
    _line(body, "capacity", [row["capacity_bytes"] for row in rows], rows)
    for term in dict.fromkeys(name for row in rows for name in row["terms"].value):
        _line(body, term, [row["terms"].get(term) for row in rows], rows)
    if any(row["at_stage"].value for row in rows):
        last = tag(body, "tr")
        tag(last, "th", "peak at", scope="row")
        for row in rows:
            shown(last, "td", row["at_stage"], class_=f"name {_class(row)}")


def _line(
    body: Element,
    title: str,
    figures: Sequence[Figure | None],
    rows: Sequence[Figure],
    kind: str = "",
) -> None:
    """Bytes of one kind; terms that are nowhere held are left out."""
    if not any(figure is not None and figure.number for figure in figures):
        return
    line = tag(body, "tr", class_=kind)
    tag(line, "th", title.replace("_", " "), scope="row")
    for figure, row in zip(figures, rows, strict=True):
        cell = tag(line, "td", class_=f"number {_class(row)}")
        if figure is not None:
            fill(cell, figure, size)


def _class(row: Figure) -> str:
    """Whether what is held fits."""
    return "over" if _share(row) > 1 else "fits"


def _share(row: Figure) -> float:
    """Of the capacity, at the peak."""
    return row["peak_bytes"].number / row["capacity_bytes"].number
