"""One colour per stage, the same in every drawing of a page; report.css says which they are."""

from __future__ import annotations

from collections.abc import Mapping
from xml.etree.ElementTree import Element

from rpeg.tools.report.figures import Figure
from rpeg.tools.report.markup import tag

COLOURS = 10
"""Classes c0 to c9 of report.css."""
NONE = "none"
"""The class of what belongs to no stage, and of stages too short for a colour of their own."""


def stage_colours(estimate: Figure) -> dict[str, str]:
    """The class of each stage, in the order of the estimate; the longest ones have colours."""
    seconds = {stage["stage"].text: stage["seconds"].number for stage in estimate["stages"]}
    longest = set(sorted(seconds, key=lambda name: -seconds[name])[:COLOURS])
    coloured = [name for name in seconds if name in longest]
    return dict.fromkeys(seconds, NONE) | {name: f"c{k}" for k, name in enumerate(coloured)}


def swatch(parent: Element, colour: str) -> None:
    """A patch of a colour before a name."""
    tag(parent, "span", class_=f"swatch {colour}")


def legend(parent: Element, names: Mapping[str, str]) -> None:
    """Names with their colours."""
    entries = tag(parent, "p", class_="legend")
    for name, colour in names.items():
        entry = tag(entries, "span", class_="entry")
        swatch(entry, colour)
        tag(entry, "span", name, class_="name")
