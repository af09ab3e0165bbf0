"""The table of docs/levels.md, between its marks: what is legal at each level."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rpeg.ir.levels import LEVELS, Level

PAGE = Path(__file__).parent / "levels.md"
BEGIN = "<!-- Written by docs/generate.py from rpeg/ir/levels.py: change that instead. -->"
END = "<!-- Until here. -->"


def levels_page() -> Iterator[str]:
    """The lines of the page, with the table as the levels are."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    yield f"{before}{BEGIN}\n"
    yield from _table()
    yield f"\n{END}{after}"


def _table() -> Iterator[str]:
    yield "| level | operations | types | notes | each pipeline has |\n|---|---|---|---|---|"
    above: Level | None = None
    for level in LEVELS.values():
        yield f"| {level.name} | {' | '.join(_cells(level, above))} | {_code([level.has])} |"
        above = level


def _cells(level: Level, above: Level | None) -> Iterator[str]:
    for what in ("operations", "types", "notes"):
        mine: frozenset[str] = getattr(level, what)
        theirs: frozenset[str] = getattr(above, what) if above is not None else frozenset()
        yield _change(mine, theirs, above.name if above is not None else "")


def _change(mine: frozenset[str], theirs: frozenset[str], above: str) -> str:
    """A set, or what it has more and less than the one of the level above where they share some."""
    if not mine & theirs:
        return _code(_short(mine))
    signs = [f"+ {_code(_short(mine - theirs))}"] if mine - theirs else []
    signs += [f"without {_code(_short(theirs - mine))}"] if theirs - mine else []
    return "; ".join([f"those of {above}", *signs])


def _short(names: frozenset[str]) -> list[str]:
    """The names, those of a whole family as one: `rpeg.loss.*`."""
    families = [n.rpartition(".")[0] for n in names if n.count(".") == 2]
    kept = {n for n in names if n.rpartition(".")[0] not in families}
    return sorted([*kept, *(f"{family}.*" for family in set(families))])


def _code(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names if name)
