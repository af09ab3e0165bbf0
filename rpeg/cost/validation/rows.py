"""Published measurements as records, one JSON object per line.

A record has `id`, `kind`, `source` {url, locator}, and what was run: `hardware`, `model`,
`parallelism`, `batch`, `lengths`, `precision`, `framework`; `measured` maps names to
{value, unit}. A field that the source doesn't tell is null or absent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from rpeg.ir.figures import FigureError, read_text

NO_KIND = "no kind"
TABLES = ("hardware", "model", "parallelism", "batch", "lengths", "measured", "source")


class RowError(ValueError):
    """A record that isn't in form; the text has file and line."""


class Unknown(Exception):
    """A record can't be predicted; the text says why, in a few words."""


Loaded = TypeVar("Loaded")


def loaded(load: Callable[[str], Loaded], name: str) -> Loaded:
    """What a file of that name holds. Raises Unknown."""
    try:
        return load(name)
    except FigureError as error:
        raise Unknown(str(error)) from error


@dataclass(frozen=True)
class Row:
    """One record. Its tables are never None, their values never null."""

    id: str
    kind: str
    fields: Mapping[str, Any]
    folder: Path = Path()
    """Where paths in the record start."""

    def table(self, name: str) -> Mapping[str, Any]:
        """A table of the record without its nulls."""
        return self.tables[name]

    @cached_property
    def tables(self) -> dict[str, dict[str, Any]]:
        """All of them."""
        given = {name: self.mapping(name) for name in TABLES}
        return {
            name: {key: value for key, value in table.items() if value is not None}
            for name, table in given.items()
        }

    def mapping(self, name: str) -> dict[str, Any]:
        """A field that is an object; empty where it is absent or something else."""
        value = self.fields.get(name)
        return value if isinstance(value, dict) else {}

    def text(self, name: str) -> str:
        """A field as lower-case text; empty where absent."""
        return str(self.fields.get(name) or "").lower()

    def number(self, table: str, key: str) -> float | None:
        """A number above 0 of a table, also where it is written as text; None without one."""
        return as_number(self.table(table).get(key))

    def needed(self, table: str, key: str) -> float:
        """The same. Raises Unknown where there is none."""
        value = self.number(table, key)
        if value is None:
            raise Unknown(f"no {table}.{key}")
        return value

    def file(self, table: str, key: str) -> str | None:
        """A .toml or .json file that the record names beside itself, or a shipped name."""
        value = self.table(table).get(key)
        if not isinstance(value, str):
            return None
        return str(self.folder / value) if value.endswith((".toml", ".json")) else value

    @property
    def source(self) -> str:
        """Who published it: "owner/repository", or the first words of another source."""
        return publisher(str(self.table("source").get("url", "unnamed")))


def as_number(value: Any) -> float | None:
    """A finite number above 0, also at the start of a text; None of anything else."""
    if isinstance(value, bool) or value is None:
        return None
    found = re.match(r"\s*[0-9]+(\.[0-9]+)?(e\+?[0-9]+)?", str(value))
    number = float(found[0]) if found else 0.0
    return number if 0.0 < number < float("inf") else None


def publisher(url: str) -> str:
    """What a URL keeps over pages: "owner/repository", or the host."""
    if "://" not in url:
        return url.split(",")[0].split("(")[0].strip()[:40]
    parts = url.split("://")[1].split("/")
    if parts[0] in ("github.com", "huggingface.co", "raw.githubusercontent.com"):
        return "/".join(parts[1:3])
    return parts[0]


def read_rows(folder: Path) -> list[Row]:
    """The records of every *.jsonl below `folder`, in order. Raises RowError."""
    files = sorted(folder.rglob("*.jsonl"))
    if not files:
        raise RowError(f"{folder}: no *.jsonl below it")
    places: dict[str, str] = {}
    rows = []
    for place, row in (found for path in files for found in _read(path)):
        if row.id in places:
            raise RowError(
                f"{place}: `{row.id}` is the id of the record at {places[row.id]} too: "
                "give each its own"
            )
        places[row.id] = place
        rows.append(row)
    return rows


def _read(path: Path) -> Iterator[tuple[str, Row]]:
    """Each record and its place; one without an id is called by that."""
    try:
        text = read_text(path)
    except FigureError as error:
        raise RowError(str(error)) from error
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
        except ValueError as error:
            raise RowError(f"{path}:{number}: not JSON: {error}") from error
        if not isinstance(fields, dict):
            raise RowError(f"{path}:{number}: not an object")
        place, kind = f"{path}:{number}", str(fields.get("kind", NO_KIND))
        yield place, Row(str(fields.get("id", place)), kind, fields, path.parent)
