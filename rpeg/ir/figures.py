"""Figures with their sources: TOML files whose every number says where it comes from.

A figure is `{ value = 4, source = "datasheet", cite = "..." }`, source being one of `SOURCES`. A
key that the reader doesn't know is an error with file and line: a misspelt rate would otherwise
fall back to a default without a word.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rpeg.ir.near import near

SOURCES = ("datasheet", "measured", "default")

TOP = ""
"""The section of the keys that stand before every `[section]`."""


LARGEST, LEAST = 1e9, 1e-3
"""What no figure exceeds, and no rate is below, in the unit of its key: beyond them someone meant
another unit.
"""


@dataclass(frozen=True)
class Range:
    """Which finite numbers a figure may be."""

    text: str
    """After "must be"."""
    example: float
    has: Callable[[float], bool]
    most: float = LARGEST

    def problem(self, value: float) -> str | None:
        """What a number outside the range must be; None for one inside it."""
        if not math.isfinite(value):
            return "finite"
        if not self.has(value):
            return self.text
        return f"at most {self.most:,.0f}" if value > self.most else None


AT_LEAST_0 = Range("at least 0", 4, lambda value: value >= 0)
AT_LEAST_1 = Range("at least 1", 4, lambda value: value >= 1)
SHARE = Range("at least 0.001 and at most 1", 0.8, lambda value: LEAST <= value <= 1)
SIZE = Range("at least 0.001", 4, lambda value: value >= LEAST)
"""A rate, or bytes: no time computed from a smaller one would mean anything."""


def up_to(most: float, least: Range = AT_LEAST_1) -> Range:
    """The numbers of a range that are no larger."""
    return replace(least, most=most)


class FigureError(ValueError):
    """A file that can't be read or isn't in form; the text says where and what to write."""


def read_text(path: Path) -> str:
    """The text of a file of figures. Raises FigureError."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise FigureError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise FigureError(f"{path}: not UTF-8 text") from error


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

        text = read_text(path)
        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise _syntax_error(path, text, str(error)) from error
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
            case {"value": int(value) | float(value), "source": source, "cite": str(), **more} if (
                not more
            ):
                self._check(section, key, value, source, within)
                return value
        value = _meant(self.section(section).get(key), within)
        raise self.wrong(section, key, f"{key} = {written(value)}")

    def whole(self, section: str, key: str, within: Range = AT_LEAST_0) -> int:
        """The same, where only a whole number makes sense. Raises FigureError."""
        value = self.number(section, key, within)
        if value != int(value):
            raise self.at(section, key, f"{key} must be a whole number, not {value}")
        return int(value)

    def count(
        self, section: str, key: str, within: Range = AT_LEAST_1, default: int | None = None
    ) -> int:
        """A plain whole number without a source of its own; the default where there is none.
        Raises FigureError.
        """
        value = self.section(section).get(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(section, key, f"{key} = a whole number")
        if (bounds := within.problem(value)) is not None:
            raise self.at(section, key, f"{key} must be {bounds}, not {value}")
        return value

    def flag(self, section: str, key: str, default: bool) -> bool:
        """Whether a key is set: true or false, or 1 or 0. Raises FigureError."""
        value = self.section(section).get(key, default)
        if value not in (0, 1):
            raise self.wrong(section, key, f"{key} = true or false")
        return bool(value)

    def texts(self, section: str, key: str) -> Sequence[str]:
        """A list of plain texts; empty where there is none. Raises FigureError."""
        value = self.section(section).get(key, [])
        if not (isinstance(value, list) and all(isinstance(each, str) for each in value)):
            raise self.wrong(section, key, f'{key} = ["..."]')
        return value

    def wrong(self, section: str, key: str, form: str) -> FigureError:
        """The error for a key that is missing or has another form."""
        if key in self.section(section):
            return self.at(section, key, f"{key} has another form: write {form}")
        where = f"[{section}]" if section else "the top of the file"
        return self.at(section, key, f"{key} is missing from {where}: write {form}")

    def _check(self, section: str, key: str, value: float, source: object, within: Range) -> None:
        if source not in SOURCES:
            known = ", ".join(SOURCES)
            raise self.at(section, key, f'the source of {key} is "{source}": write one of {known}')
        if (bounds := within.problem(value)) is not None:
            raise self.at(section, key, f"{key} must be {bounds}, not {value}")

    def at(self, section: str, key: str, text: str) -> FigureError:
        """The error of a key, at its place; at its section's where the file lacks it."""
        place = self._place(section, key)
        return FigureError(f"{place}: {text}")

    def _refuse_unknown(self, known: Mapping[str, Collection[str]]) -> None:
        for section, table in self.sections.items():
            if section not in known:
                raise self._unknown(section, section, [name for name in known if name])
            for key in table:
                if key not in known[section]:
                    raise self._unknown(section, key, known[section])

    def _unknown(self, section: str, key: str, known: Collection[str]) -> FigureError:
        close = near(key, known)
        hint = f'did you mean "{close[0]}"? ' if close else ""
        text = f'unknown "{key}": {hint}known are {", ".join(sorted(known))}'
        return self.at(section, key, text)

    def _place(self, section: str, key: str) -> str:
        """`FILE:LINE:COLUMN` of a key, of its section's head, or of the file's."""
        here, head = TOP, f"{self.path}:1:1"
        named = re.compile(rf'\s*"?({re.escape(key)})"?\s*[=.]')
        for number, line in enumerate(self.text.splitlines(), 1):
            if match := re.match(r"\s*\[\s*([\w.-]+)\s*\]", line):
                here = match[1]
                head = f"{self.path}:{number}:1" if here == section else head
            elif here == section and (found := named.match(line)):
                return f"{self.path}:{number}:{found.start(1) + 1}"
        return head


def written(value: float) -> str:
    """A figure whose source is not known, as a file has it."""
    return f'{{ value = {value}, source = "default", cite = "" }}'


def _meant(given: object, within: Range) -> float:
    """The number that a key in another form has, if it may be its figure; else an example."""
    number = given.get("value") if isinstance(given, dict) else given
    if isinstance(number, bool) or not isinstance(number, int | float):
        return within.example
    return within.example if within.problem(number) is not None else number


def _syntax_error(path: Path, text: str, message: str) -> FigureError:
    """The error for a text that isn't TOML; the parser gives the place in words."""
    reason, _, place = message.rpartition(" (at ")
    if (found := re.match(r"line (\d+), column (\d+)", place)) is not None:
        line, column = found[1], found[2]
    else:
        rows = text.splitlines() or [""]
        line, column = str(len(rows)), str(len(rows[-1]) + 1)
    if (again := _written_twice(text, int(line), reason)) is not None:
        return FigureError(f"{path}:{line}:1: {again} is written twice: keep one")
    return FigureError(f"{path}:{line}:{column}: not TOML: {reason}")


def _written_twice(text: str, line: int, reason: str) -> str | None:
    """The key or the section that the parser finds again, whose messages name neither or in
    Python's form; None for what else is wrong.
    """
    row = text.splitlines()[line - 1] if text else ""
    if reason == "Cannot overwrite a value" and (key := re.match(r"\s*([\w.-]+)\s*=", row)):
        return f'"{key[1]}"'
    return row.strip() if reason.startswith("Cannot declare") else None


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
