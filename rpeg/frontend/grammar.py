"""The parser made from `grammar/rpeg.lark`, and what its terminals are called in messages."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from lark import Lark

from rpeg.frontend.build import TreeBuilder
from rpeg.resources import resource

WORDS = {
    "NAME": "a name",
    "INT": "a number",
    "FLOAT": "a number",
    "STRING": 'a string "..."',
    "PARAM_NAME": "a $param",
    "QUANTITY": "a quantity",
    "_NL": "the end of the line",
    "SIGN": "`+` or `-`",
    "$END": "the end of the file",
    "value": "a value",
    "literal": 'a number, a text "...", true or false',
}
_LITERALS = {"INT", "FLOAT", "STRING", "PARAM_NAME", "QUANTITY", "SIGN", "TRUE", "FALSE"}
_VALUES = _LITERALS | {"NAME", "LSQB"}
_FIRST = ("COMMA", "RPAR", "RSQB", "EQUAL", "LPAR", "LBRACE", "RBRACE", "NAME", "_NL")


@cache
def parser() -> Lark:
    """The one parser, read from the user's cache or made from the grammar at the first use."""
    grammar = resource("grammar/rpeg.lark").read_text(encoding="utf-8")
    return Lark(
        grammar,
        parser="lalr",
        lexer="basic",
        start=["start", "param"],
        maybe_placeholders=True,
        transformer=TreeBuilder(),
        cache=_cache_file() or False,
    )


def _cache_file() -> str | None:
    """Where the parser tables are kept: to read them takes a tenth of the time to make them.

    The parser checks that they are those of this grammar, and makes them anew if not.
    """
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rpeg"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # no home, or one that can't be written
        return None
    return str(folder / "grammar.tables")


@cache
def spellings() -> dict[str, str]:
    """How each terminal that has one spelling is written, such as `COMMA`: `,`."""
    return {t.name: t.pattern.value for t in parser().terminals if t.pattern.type == "str"}


@cache
def keywords() -> frozenset[str]:
    """The reserved words."""
    return frozenset(s for s in spellings().values() if s.isalpha())


def alternatives(terminals: Iterable[str]) -> str:
    """What may stand at a place, for a message: `,` or `)`."""
    found = set(terminals)
    if found >= _VALUES:
        found = (found - _VALUES - {"_NL"}) | {"value"}
    elif found >= _LITERALS:
        found = (found - _LITERALS) | {"literal"}
    names = sorted(found, key=_rank)
    words = list(dict.fromkeys(WORDS.get(n) or f"`{spellings()[n]}`" for n in names))
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _rank(terminal: str) -> tuple[int, str]:
    """The likeliest first, then the others in a fixed order."""
    return (_FIRST.index(terminal) if terminal in _FIRST else len(_FIRST), terminal)
