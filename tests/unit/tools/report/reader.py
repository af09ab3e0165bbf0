"""What a test sees of a report: its figures, and digits that are in none."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

VOID = {"meta"}
OTHER = {"tick", "name", "small"}
"""Classes of texts whose digits are the marks of an axis or a part of a name."""


class Reader(HTMLParser):
    """Elements with a data-key, and the digits of the page that are in no such element."""

    def __init__(self) -> None:
        super().__init__()
        self.figures: list[tuple[str, Any]] = []
        self.loose: list[str] = []
        self.tags: set[str] = set()
        self._open: list[dict[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        held = {**dict(attrs), "tag": tag}
        if held.get("data-key"):
            self.figures.append((str(held["data-key"]), json.loads(str(held["data-value"]))))
        if tag not in VOID:
            self._open.append(held)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()["tag"] == tag

    def handle_data(self, data: str) -> None:
        if re.search(r"\d", data) and not any(map(_is_named, self._open)):
            self.loose.append(data)


def _is_named(element: dict[str, str | None]) -> bool:
    classes = set(str(element.get("class", "")).split())
    return "data-key" in element or element["tag"] in {"style", "title"} or bool(classes & OTHER)


def at(table: Any, key: str) -> Any:
    """What a path of JSON leads to."""
    for part in key.split("."):
        table = table[int(part)] if isinstance(table, list) else table[part]
    return table
