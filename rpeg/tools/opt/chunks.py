"""`--split-input-file`: several inputs in one file, each at its own lines of the whole."""

from __future__ import annotations

import re
from dataclasses import dataclass

_SEPARATOR = re.compile(r"^[ \t]*(?://|#) -----[ \t]*$", re.MULTILINE)


@dataclass(frozen=True)
class Chunk:
    """A part of a file."""

    text: str
    """Its text below as many empty lines as stand above it in the file: places are the file's."""


def whole(text: str) -> list[Chunk]:
    """The file as one chunk."""
    return [Chunk(text)]


def split(text: str) -> list[Chunk]:
    """The chunks between lines `// -----` or `# -----`."""
    chunks: list[Chunk] = []
    start = 0
    for match in _SEPARATOR.finditer(text):
        chunks.append(_chunk(text, start, match.start()))
        start = match.end()
    return [*chunks, _chunk(text, start, len(text))]


def _chunk(text: str, start: int, end: int) -> Chunk:
    return Chunk("\n" * text.count("\n", 0, start) + text[start:end])
