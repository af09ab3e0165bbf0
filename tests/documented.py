"""The names in metrics.jsonl that docs/run-folder.md explains."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

_PAGE = Path(__file__).parents[1] / "docs" / "run-folder.md"
_ROW = re.compile(r"^\| (?P<names>`.*?) \|", re.M)


def documented() -> list[str]:
    """The names of the table: `lag/max`, `reward/<name>`."""
    text = _PAGE.read_text(encoding="utf-8").partition("**Names in `metrics.jsonl`.**")[2]
    rows = _ROW.findall(text.partition("\n**")[0])
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]


def unexplained(steps: Iterable[Mapping[str, object]]) -> set[str]:
    """Names in lines of metrics.jsonl that the page does not have; a `<...>` is any name, that of a
    stage with those inside of it.
    """
    forms = [re.escape(name).replace("<stage>", ".+") for name in documented()]
    known = [re.compile(re.sub(r"<\w+>", "[^/]+", form)) for form in forms]
    names = {name for step in steps for name in step}
    return {name for name in names if not any(form.fullmatch(name) for form in known)}
