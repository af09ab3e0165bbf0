"""Messages about a text: where, how bad, what to write."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TextIO
from unicodedata import category

Severity = Literal["error", "warning", "note"]

LONGEST = 240
"""Characters of a source line that a message shows."""

_COLOURS = {"error": "bold red", "warning": "bold yellow", "note": "bold cyan"}


@dataclass(frozen=True, order=True)
class Position:
    """A place in a text; lines and columns (in characters) count from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.line}:{self.column}"


@dataclass(frozen=True)
class Diagnostic:
    """One message. `file` is what the user called the text, not necessarily a path."""

    at: Position
    message: str
    severity: Severity = "error"
    file: str = ""
    rule: str = field(default="", compare=False)
    """The code of the rule of the verifier that is broken; empty for other messages."""

    def __str__(self) -> str:
        return f"{self.file}:{self.at}: {self.severity}: {self.message}"

    def coded(self) -> Diagnostic:
        """The same with the code of its rule behind the message."""
        return replace(self, message=f"{self.message} [{self.rule}]") if self.rule else self


class DiagnosticsError(Exception):
    """Work that could not be done for what a user wrote. Tools print it, without a traceback."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = in_order(diagnostics)
        super().__init__("\n".join(map(str, self.diagnostics)))


def in_order(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """By file, then by place; messages about one place keep their order."""
    return tuple(sorted(diagnostics, key=lambda d: (d.file, d.at)))


def has_errors(diagnostics: Iterable[Diagnostic]) -> bool:
    """Whether any of them is an error: warnings and notes stop nothing."""
    return any(d.severity == "error" for d in diagnostics)


def render(diagnostics: Iterable[Diagnostic], sources: Mapping[str, str]) -> str:
    """Each message with its source line and a caret; `sources` maps file names to texts."""
    blocks = (_block(d, sources.get(d.file, "")) for d in in_order(diagnostics))
    return "".join(f"{line}\n" for block in blocks for line in block)


def show(
    diagnostics: Iterable[Diagnostic], sources: Mapping[str, str], stream: TextIO | None = None
) -> None:
    """Writes `render` to a stream (standard error); in colour on a terminal, without NO_COLOR."""
    stream = stream or sys.stderr
    if stream.isatty() and not os.environ.get("NO_COLOR"):
        _show_in_colour(diagnostics, sources, stream)
    else:
        stream.write(render(diagnostics, sources))


def _block(diagnostic: Diagnostic, source: str) -> list[str]:
    return [str(diagnostic), *_excerpt(diagnostic.at, source)]


def _excerpt(at: Position, source: str) -> list[str]:
    """The line and a caret below the column; nothing if the text has no such line."""
    lines = source.split("\n")
    if not (source and 1 <= at.line <= len(lines)):
        return []
    line, column = _window(lines[at.line - 1].rstrip("\r"), at.column - 1)
    line, column = _visible(line), len(_visible(line[:column]))
    pad = "".join("\t" if c == "\t" else " " for c in line[:column])
    return [f"    {line}", f"    {pad}^"]


def _visible(line: str) -> str:
    """Control characters as escapes, since a terminal would obey them."""
    return "".join(ascii(c)[1:-1] if category(c) == "Cc" and c != "\t" else c for c in line)


def _window(line: str, column: int) -> tuple[str, int]:
    """The part of a long line around a column, and where the column is in it."""
    if len(line) <= LONGEST:
        return line, column
    start = max(0, min(column - LONGEST // 2, len(line) - LONGEST))
    head, tail = "..." if start else "", "..." if start + LONGEST < len(line) else ""
    return f"{head}{line[start : start + LONGEST]}{tail}", column - start + len(head)


def _show_in_colour(
    diagnostics: Iterable[Diagnostic], sources: Mapping[str, str], stream: TextIO
) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream, highlight=False, soft_wrap=True)
    for diagnostic in in_order(diagnostics):
        text = Text("\n".join(_block(diagnostic, sources.get(diagnostic.file, ""))))
        text.highlight_words([f" {diagnostic.severity}: "], _COLOURS[diagnostic.severity])
        console.print(text)
