"""How many rows a data set has, as far as its declaration or a file that is here tells."""

from __future__ import annotations

from pathlib import Path

from rpeg.ir.ops.declare import DataOp
from rpeg.ir.vocabulary.settings import python_value
from rpeg.resources import found


def known_rows(data: DataOp, folder: Path) -> int | None:
    """At most its `limit`, and what its file of JSON lines has if that is here; None where neither
    tells. Paths are relative to `folder`.
    """
    limit = python_value(data.properties.get("limit"))
    told = (limit if isinstance(limit, int) else None, _lines(data.uri or "", folder))
    return min((number for number in told if number is not None), default=None)


def _lines(uri: str, folder: Path) -> int | None:
    """Lines of a local file that hold something."""
    if ":" in uri or not uri.endswith(".jsonl"):
        return None
    try:
        with found(folder, uri).open("rb") as file:
            return sum(1 for line in file if line.strip())
    except OSError:
        return None
