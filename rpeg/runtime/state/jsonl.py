"""Files of one JSON object a line, which a kill may cut short."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from rpeg.runtime.state.files import write_atomic

Object = dict[str, Any]


def read(path: Path) -> list[Object]:
    """The objects of a file, oldest first; a last line cut short by a kill is left out."""
    if not path.exists():
        return []
    texts = path.read_text(encoding="utf-8").split("\n")
    return [json.loads(text) for text in texts[:-1] if text]


def append(path: Path, objects: Iterable[Mapping[str, Any]]) -> None:
    """Adds lines at the end."""
    with path.open("a", encoding="utf-8") as file:
        file.writelines(map(_line, objects))


def rewrite(path: Path, objects: Iterable[Mapping[str, Any]]) -> None:
    """Replaces the whole file in one rename."""
    write_atomic(path, "".join(map(_line, objects)))


def keep(path: Path, wanted: Callable[[Object], bool]) -> None:
    """Drops the other objects of a file, and a line cut short, if there is such a file."""
    if path.exists():
        rewrite(path, [line for line in read(path) if wanted(line)])


def _line(content: Mapping[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False) + "\n"
