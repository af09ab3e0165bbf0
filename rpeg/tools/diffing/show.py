"""Changes as a reader would say them, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby

from rpeg.tools.diffing.compare import Change

SCHEMA = "rpeg-diff/1"
MEANS = {
    "L0": "what a step computes",
    "L1": "where stages run",
    "L2": "in which order",
    "L3": "a program",
}


def text(changes: Sequence[Change], levels: tuple[str, str]) -> str:
    """Lines by section and item: `+` new, `-` gone, `~` renamed, and each field that changed."""
    return "".join(f"{line}\n" for line in _lines(changes, levels))


def as_json(changes: Sequence[Change], levels: tuple[str, str]) -> str:
    """The changes as records, in the order of `text`."""
    held = {
        "schema": SCHEMA,
        "same": not changes,
        "only_names": only_names(changes),
        "levels": list(levels),
        "changes": [asdict(change) for change in changes],
    }
    return json.dumps(held, indent=2) + "\n"


def only_names(changes: Sequence[Change]) -> bool:
    """Whether there are differences, all of them in what things are called."""
    return bool(changes) and all(change.kind == "renamed" for change in changes)


def _lines(changes: Sequence[Change], levels: tuple[str, str]) -> Iterator[str]:
    if not changes:
        yield "no difference"
        return
    old, new = levels
    if old != new:
        yield f"levels: {old} ({MEANS[old]}) -> {new} ({MEANS[new]})"
    if only_names(changes):
        yield "equal but for names"
    for section, of_section in groupby(changes, lambda change: change.section):
        yield section
        for item, of_item in groupby(of_section, lambda change: change.item):
            yield from _item(item, list(of_item))


def _item(item: str, changes: Sequence[Change]) -> Iterator[str]:
    whole = [change for change in changes if change.kind != "changed"]
    fields = [change for change in changes if change.kind == "changed"]
    yield from (_whole(change) for change in whole)
    if len(fields) == 1 and not whole:
        (one,) = fields
        yield f"  {item}: {one.field}: {one.old} -> {one.new}"
    elif fields:
        yield f"  {item}"
        yield from (f"    {c.field}: {c.old} -> {c.new}" for c in fields)


def _whole(change: Change) -> str:
    says = f": {change.new or change.old}" if change.new or change.old else ""
    match change.kind:
        case "added":
            return f"  + {change.item}{says}"
        case "removed":
            return f"  - {change.item}{says}"
        case _:
            return f"  ~ {change.item}: was called {change.old}"
