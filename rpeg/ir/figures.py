"""Figures with their sources: TOML files whose every number says where it comes from.

A figure is `{ value = 4, source = "datasheet", cite = "..." }`, source being one of `SOURCES`. A
key that the reader doesn't know is an error with file and line: a misspelt rate would otherwise
fall back to a default without a word.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCES = ("datasheet", "measured", "default")

TOP = ""
"""The section of the keys that stand before every `[section]`."""


@dataclass(frozen=True)
class Range:
    """Which finite numbers a figure may be."""

    text: str
    """After "must be"."""
    example: float
    has: Callable[[float], bool]


AT_LEAST_0 = Range("at least 0", 4, lambda value: value >= 0)
AT_LEAST_1 = Range("at least 1", 4, lambda value: value >= 1)
ABOVE_0 = Range("above 0", 4, lambda value: value > 0)
SHARE = Range("above 0 and at most 1", 0.8, lambda value: 0 < value <= 1)


class FigureError(ValueError):
    """A file that can't be read or isn't in form; the text says where and what to write."""


@dataclass(frozen=True)
class Figures:
    """One file: its sections, each a table of texts and figures."""

    path: Path
    text: str
    sections: Mapping[str, Mapping[str, Any]]

    @classmethod
    def read(cls, path: Path, known: Mapping[str, Collection[str]]) -> Figures:
        """The file at `path`; `known` gives the keys of each section. Raises FigureError."""
        import tomllib

        try:
            text = path.read_text(encoding="utf-8")
            table = tomllib.loads(text)
        except OSError as error:
            raise FigureError(f"cannot read {path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise FigureError(f"{path}: not UTF-8 text") from error
        except tomllib.TOMLDecodeError as error:
            raise FigureError(f"{path}: {error}") from error
        file = cls(path, text, _sections(table, known))
        file._refuse_unknown(known)
        return file

    def section(self, name: str) -> Mapping[str, Any]:
        """A section's table; empty where the file has none."""
        return self.sections.get(name, {})

    def words(self, section: str, key: str) -> str:
        """A plain text. Raises FigureError."""
        value = self.section(section).get(key)
        if not isinstance(value, str):
            raise self.wrong(section, key, f'{key} = "..."')
        return value

    def number(
        self, section: str, key: str, within: Range = AT_LEAST_0, default: float | None = None
    ) -> float:
        """The value of a figure; the default where there is none. Raises FigureError."""
        if default is not None and key not in self.section(section):
            return default
        match self.section(section).get(key):
            case {"value": bool()}:
                pass
            case {"value": int(value) | float(value), "source": source, "cite": str()}:
                self._check(section, key, value, source, within)
                return value
        form = f'{{ value = {within.example}, source = "datasheet", cite = "" }}'
        raise self.wrong(section, key, f"{key} = {form}")

    def whole(self, section: str, key: str, within: Range = AT_LEAST_0) -> int:
        """The same, where only a whole number makes sense. Raises FigureError."""
        value = self.number(section, key, within)
        if value != int(value):
            raise self._at(section, key, f"{key} must be a whole number, not {value}")
        return int(value)

    def wrong(self, section: str, key: str, form: str) -> FigureError:
        """The error for a key that is missing or has another form."""
        if key in self.section(section):
            return self._at(section, key, f"{key} has another form: write {form}")
        where = f"[{section}]" if section else "the top of the file"
        return self._at(section, key, f"{key} is missing from {where}: write {form}")

    def _check(self, section: str, key: str, value: float, source: object, within: Range) -> None:
        if source not in SOURCES:
            known = ", ".join(SOURCES)
            raise self._at(section, key, f'the source of {key} is "{source}": write one of {known}')
        if not (math.isfinite(value) and within.has(value)):
            bounds = within.text if math.isfinite(value) else "finite"
            raise self._at(section, key, f"{key} must be {bounds}, not {value}")

    def _at(self, section: str, key: str, text: str) -> FigureError:
        line = self._line(section, key)
        place = f"{self.path}:{line}" if line else str(self.path)
        return FigureError(f"{place}: {text}")

    def _refuse_unknown(self, known: Mapping[str, Collection[str]]) -> None:
        for section, table in self.sections.items():
            if section not in known:
                raise self._unknown(section, section, [name for name in known if name])
            for key in table:
                if key not in known[section]:
                    raise self._unknown(section, key, known[section])

    def _unknown(self, section: str, key: str, known: Collection[str]) -> FigureError:
        close = difflib.get_close_matches(key, known, n=1)
        hint = f'did you mean "{close[0]}"? ' if close else ""
        place = f"{self.path}:{self._line(section, key)}"
        return FigureError(f'{place}: unknown "{key}": {hint}known are {", ".join(sorted(known))}')

    def _line(self, section: str, key: str) -> int:
        """The line of a key, or of its section's head; 0 where the file has neither."""
        here, head = TOP, 0
        for number, line in enumerate(self.text.splitlines(), 1):
            if match := re.match(r"\s*\[\s*([\w.-]+)\s*\]", line):
                here = match[1]
                head = number if here == section else head
            elif here == section and re.match(rf'\s*"?{re.escape(key)}"?\s*[=.]', line):
                return number
        return head


def _sections(
    table: Mapping[str, Any], known: Mapping[str, Collection[str]]
) -> dict[str, Mapping[str, Any]]:
    """Top-level keys in section TOP; a table that isn't a figure is a section of its own."""
    named = {
        key: value
        for key, value in table.items()
        if isinstance(value, dict) and key not in known[TOP] and "value" not in value
    }
    return {TOP: {key: value for key, value in table.items() if key not in named}, **named}
