"""Figures as bars: what the period waits for, and what each stage spends its seconds on."""

from __future__ import annotations

from xml.etree.ElementTree import Element

from rpeg.tools.report.colours import COLOURS, legend
from rpeg.tools.report.figures import Figure
from rpeg.tools.report.markup import fill, shown, tag
from rpeg.tools.report.quantities import seconds

BOUNDS = {
    "load": "all work of the busiest resource",
    "cycle": "what waits for itself, whatever the order on resources",
    "head_body_tail": "a resource's work, with what comes before and after it",
}
"""What each bound of the period counts."""


def draw_bounds(section: Element, estimate: Figure) -> None:
    """The period and its lower bounds, then the cycle that it waits for."""
    table = tag(section, "table", class_="bars")
    body = tag(table, "tbody")
    longest = max([estimate["period_s"].number, *estimate["bounds"].value.values()])
    rows = [("period", estimate["period_s"])]
    rows += [(BOUNDS[name], figure) for name, figure in estimate["bounds"].items()]
    for words, figure in rows:
        row = tag(body, "tr")
        tag(row, "th", words, scope="row")
        shown(row, "td", figure, seconds, class_="number")
        _bar(tag(row, "td", class_="bar-cell"), figure, longest)
    _cycle(section, estimate)


def _cycle(section: Element, estimate: Figure) -> None:
    if not estimate["critical_cycle"].value:
        return
    line = tag(section, "p", "Critical cycle: ", class_="cycle")
    for k, task in enumerate(estimate["critical_cycle"]):
        if k:
            tag(line, "span", " → ")
        shown(line, "span", task, class_="name")
    tag(line, "span", " → and again, once in ")
    distance = estimate["critical_distance"]
    shown(line, "span", distance)
    tag(line, "span", " step." if distance.value == 1 else " steps.")


def _bar(cell: Element, figure: Figure, longest: float) -> None:
    width = 100 * figure.number / longest if longest else 0.0
    bar = tag(cell, "div", class_="fill c0", style=f"width:{width:.2f}%")
    bar.attrib.update(figure.attributes)


def draw_breakdown(section: Element, estimate: Figure) -> None:
    """One bar per stage, a part for each cause, as long as its seconds."""
    causes = dict.fromkeys(name for s in estimate["stages"] for name, _ in s["breakdown"].items())
    colours = {cause: f"c{k % COLOURS}" for k, cause in enumerate(causes)}
    longest = max(stage["seconds"].number for stage in estimate["stages"])
    legend(section, colours)
    body = tag(tag(section, "table", class_="bars"), "tbody")
    for stage in estimate["stages"]:
        row = tag(body, "tr")
        shown(row, "th", stage["stage"], scope="row", class_="name")
        shown(row, "td", stage["seconds"], seconds, class_="number")
        cell = tag(row, "td", class_="bar-cell")
        _parts(tag(cell, "div", class_="parts"), stage, colours, longest)
        _terms(cell, stage)


def _parts(bar: Element, stage: Figure, colours: dict[str, str], longest: float) -> None:
    for cause, figure in stage["breakdown"].items():
        width = 100 * figure.number / longest if longest else 0.0
        part = tag(bar, "div", class_=f"part {colours[cause]}", style=f"width:{width:.2f}%")
        part.set("title", f"{cause}: {seconds(figure.number)}")
        part.attrib.update(figure.attributes)


def _terms(cell: Element, stage: Figure) -> None:
    terms = tag(cell, "div", class_="terms")
    for cause, figure in stage["breakdown"].items():
        if figure.number:
            term = tag(terms, "span", f"{cause} ", class_="term")
            fill(tag(term, "b"), figure, seconds)
