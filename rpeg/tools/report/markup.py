"""Elements of HTML and SVG, and the drawing area that charts share."""

from __future__ import annotations

import math
from collections.abc import Callable
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from rpeg.tools.report.figures import Figure

CHARACTER = 0.62
"""Width of a character of a monospaced font over its size, or a little more."""
FONT = 11
"""Size of the text of a drawing, as in report.css."""


def tag(parent: Element, name: str, text: str = "", /, **attributes: str | float) -> Element:
    """A new last child. `class_` stands for class, an underscore inside a name for a dash."""
    held = {_spelled(key): _written(value) for key, value in attributes.items()}
    child = ElementTree.SubElement(parent, name, held)
    child.text = text
    return child


def shown(
    parent: Element,
    name: str,
    figure: Figure,
    unit: Callable[[float], str] | None = None,
    **attributes: str | float,
) -> Element:
    """A new last child that shows a figure."""
    child = tag(parent, name, **attributes)
    fill(child, figure, unit)
    return child


def fill(element: Element, figure: Figure, unit: Callable[[float], str] | None = None) -> None:
    """Shows a figure in its unit, a name as it is, and nothing as a dash."""
    if figure.value is None:
        element.text = "–"
    else:
        element.text = unit(figure.number) if unit is not None else figure.text
    element.attrib.update(figure.attributes)


def drawing(parent: Element, width: float, height: float, label: str) -> Element:
    """An SVG of a size in its own units; `label` describes it to screen readers."""
    return tag(
        parent,
        "svg",
        viewBox=f"0 0 {_written(width)} {_written(height)}",
        role="img",
        aria_label=label,
        style=f"max-width:{_written(1.3 * width)}px",
    )


def hint(element: Element, text: str) -> None:
    """What a pointer over the element brings up."""
    tag(element, "title", text)


def short(text: str, width: float, size: float = FONT) -> str:
    """As much of a text as fits a width, and an ellipsis for the rest."""
    room = math.floor(width / (CHARACTER * size))
    return text if len(text) <= room else f"{text[: max(room - 1, 0)]}…"


def path(points: list[tuple[float, float]]) -> str:
    """Straight lines through points, for a path's `d`."""
    return "M" + "L".join(f"{_written(x)},{_written(y)}" for x, y in points)


def html(root: Element) -> str:
    """The text of a document."""
    return "<!DOCTYPE html>\n" + ElementTree.tostring(root, encoding="unicode", method="html")


def _spelled(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _written(value: str | float) -> str:
    return value if isinstance(value, str) else f"{round(value, 2):g}"
