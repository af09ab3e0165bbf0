"""Files of one JSON object per line, which a kill may cut short."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rpeg.rundir.failures import RunFolderFailure
from rpeg.rundir.files import write_atomic

Object = dict[str, Any]
Column = Sequence[str | int] | Mapping[str, "Column"]
"""Of each object, JSON text or a whole number, or the columns of an object within."""


def read(path: Path) -> list[Object]:
    """The objects of a file, oldest first; a last line cut short by a kill is left out.

    Raises RunFolderFailure for any other line that is damaged.
    """
    if not path.exists():
        return []
    texts = path.read_bytes().split(b"\n")
    return [parse(text, path, n) for n, text in enumerate(texts[:-1], start=1) if text]


def parse(text: bytes, path: Path, number: int) -> Object:
    """The object of line `number` of a file. Raises RunFolderFailure if it is none."""
    try:
        content = json.loads(text)
    except ValueError as error:
        raise _damaged(path, number, str(error)) from None
    if not isinstance(content, dict):
        raise _damaged(path, number, "not an object")
    return content


def _damaged(path: Path, number: int, why: str) -> RunFolderFailure:
    return RunFolderFailure(
        f"{path}:{number} cannot be read ({why}): put a sound copy of the file back, "
        "or delete this line"
    )


def append(path: Path, objects: Iterable[Mapping[str, Any]]) -> None:
    """Adds lines at the end."""
    append_text(path, lines(objects))


def append_text(path: Path, text: str) -> None:
    """Adds whole lines at the end."""
    with path.open("ab") as file:
        file.write(text.encode())


def rewrite(path: Path, objects: Iterable[Mapping[str, Any]]) -> None:
    """Replaces the whole file in one rename."""
    write_atomic(path, lines(objects))


def keep(path: Path, wanted: Callable[[Object], bool]) -> None:
    """Drops the other objects of a file, and a line cut short, if there is such a file."""
    if path.exists():
        rewrite(path, [line for line in read(path) if wanted(line)])


def encoded(values: Sequence[str | float | None]) -> list[str]:
    """The JSON text of each value, all encoded at once."""
    return _ENCODER.encode(values)[1:-1].split("\n") if values else []


def objects_of(columns: Mapping[str, Column]) -> list[str]:
    """The JSON text of each object, from those of their values by name, or whole numbers; a column
    of columns is an object in each. A fifth of what encoding the objects takes.
    """
    pattern, values = _pattern(columns)
    return [pattern % each for each in zip(*values, strict=True)]


def _pattern(columns: Mapping[str, Column]) -> tuple[str, list[Sequence[str | int]]]:
    """What an object looks like, and the columns that fill it."""
    fields, values = list[str](), list[Sequence[str | int]]()
    for name, column in columns.items():
        field, parts = _pattern(column) if isinstance(column, Mapping) else ("%s", [column])
        fields.append(json.dumps(name, ensure_ascii=False).replace("%", "%%") + ": " + field)
        values += parts
    return "{" + ", ".join(fields) + "}", values


Append = Callable[[Path, str], None]
"""Adds whole lines at the end of a file: `append_text`, or a thread that does."""

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=("\n", ": "))
_SEAM = "}\n{"


def lines(objects: Iterable[Mapping[str, Any]]) -> str:
    """One line per object, all encoded at once: encoding each by itself takes three times as long.

    JSON text has no line break or zero of its own: the encoder writes a break before whatever
    follows, and only those between two objects stay.
    """
    listed = list(objects)
    text = _ENCODER.encode(listed)[1:-1]
    if text.count(_SEAM) != len(listed) - 1:  # some object holds a list of objects
        return "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in listed)
    return text.replace(_SEAM, "}\0{").replace("\n", ", ").replace("\0", "\n") + "\n"
