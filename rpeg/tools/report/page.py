"""The whole page: what a pipeline takes on a cluster, as an estimate says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from rpeg.ir.ops.declare import PipelineOp
from rpeg.tools.report.bars import draw_bounds, draw_breakdown
from rpeg.tools.report.figures import Figure
from rpeg.tools.report.graph import draw_graph
from rpeg.tools.report.markup import html, shown, tag
from rpeg.tools.report.memory import draw_memory
from rpeg.tools.report.quantities import count, dollars, dollars_for_million, number, seconds, share
from rpeg.tools.report.roofline import draw_roofline
from rpeg.tools.report.timeline import draw_timeline

STYLE = Path(__file__).with_name("report.css")
NOTHING_ELSE = "default-src 'none'; style-src 'unsafe-inline'"
"""What the page may load: nothing; what is in it is all there is."""


def page(estimate: Mapping[str, Any], pipeline: PipelineOp) -> str:
    """The text of the page.

    Args:
        estimate: `Estimate.to_json`; the elements that show its figures have their paths in it as
            `data-key`, and their values as `data-value`.
        pipeline: as the file has it, whose step is drawn.
    """
    figures = Figure(estimate)
    root = Element("html", lang="en")
    _head(root, figures)
    main = tag(tag(root, "body"), "main")
    _title(main, figures)
    _summary(main, figures)
    _section(main, "What the period waits for", lambda s: draw_bounds(s, figures))
    _section(main, "Graph of a step", lambda s: draw_graph(s, figures, pipeline))
    if figures["tasks"].value:
        _section(main, "Timeline", lambda s: draw_timeline(s, figures))
    if figures["memory"].value:
        _section(main, "Memory over time", lambda s: draw_memory(s, figures))
    if figures["stages"].value:
        _section(main, "Roofline by stage", lambda s: draw_roofline(s, figures))
        _section(main, "Where the seconds go", lambda s: draw_breakdown(s, figures))
    _section(main, "Cost and use", lambda s: _cost(s, figures))
    return html(root)


def _head(root: Element, figures: Figure) -> None:
    head = tag(root, "head")
    tag(head, "meta", charset="utf-8")
    tag(head, "meta", name="viewport", content="width=device-width, initial-scale=1")
    policy = tag(head, "meta", content=NOTHING_ELSE)
    policy.set("http-equiv", "Content-Security-Policy")
    title = f"{figures['pipeline'].text} on {figures['cluster'].text}"
    tag(head, "title", title)
    tag(head, "style", STYLE.read_text(encoding="utf-8"))


def _title(main: Element, figures: Figure) -> None:
    shown(main, "h1", figures["pipeline"])
    line = tag(main, "p", "plan ", class_="lead-in")
    shown(line, "b", figures["plan"])
    tag(line, "span", " on ")
    shown(line, "b", figures["cluster"])
    tag(line, "span", ", ")
    unit = "GPUs" if figures["gpus"].value else "cores"
    shown(line, "b", figures[unit.lower()], count)
    misfit = "" if all(map(_fits, figures["memory"])) else " (does not fit)"
    tag(line, "span", f" {unit}{misfit}; predicted, not measured")


def _fits(memory: Figure) -> bool:
    return memory["peak_bytes"].number <= memory["capacity_bytes"].number


def _summary(main: Element, figures: Figure) -> None:
    cards = tag(main, "dl", class_="cards")
    _card(cards, "period", figures["period_s"], seconds)
    _card(cards, "a step by itself", figures["latency_s"], seconds)
    _card(cards, "tokens per second", figures["cost"]["tokens_per_s"], number)
    _card(cards, "a step costs", figures["cost"]["usd_per_step"], dollars)
    if figures["notes"].value:
        notes = tag(main, "ul", class_="notes")
        for note in figures["notes"]:
            shown(notes, "li", note)


def _card(cards: Element, name: str, figure: Figure, unit: Callable[[float], str]) -> None:
    card = tag(cards, "div", class_="card")
    tag(card, "dt", name)
    shown(card, "dd", figure, unit)


def _section(main: Element, title: str, draw: Callable[[Element], None]) -> None:
    section = tag(main, "section")
    tag(section, "h2", title)
    draw(section)


def _cost(section: Element, figures: Figure) -> None:
    body = tag(tag(section, "table", class_="facts"), "tbody")
    cost = figures["cost"]
    _fact(body, "a step", cost["usd_per_step"], dollars)
    _fact(body, "trained tokens", cost["usd_per_token"], dollars_for_million)
    _fact(body, "trained tokens per second", cost["tokens_per_s"], number)
    table = tag(section, "table")
    head = tag(tag(table, "thead"), "tr")
    for title in ("pool", "GPUs", "busy"):
        tag(head, "th", title, scope="col")
    rows = tag(table, "tbody")
    for pool in figures["pools"]:
        row = tag(rows, "tr")
        shown(row, "th", pool["pool"], scope="row")
        shown(row, "td", pool["gpus"], count, class_="number")
        shown(row, "td", pool["busy_share"], share, class_="number")


def _fact(body: Element, name: str, figure: Figure, unit: Callable[[float], str]) -> None:
    row = tag(body, "tr")
    tag(row, "th", name, scope="row")
    shown(row, "td", figure, unit, class_="number")
