"""The parser made from `grammar/rpeg.lark`, and what its terminals are called in messages."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

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
}
_FIRST = ("COMMA", "RPAR", "RSQB", "EQUAL", "LPAR", "LBRACE", "RBRACE", "NAME", "_NL")


@cache
def parser() -> Lark:
    """The one parser; made at the first use, which costs a tenth of a second."""
    grammar = resource("grammar/rpeg.lark").read_text(encoding="utf-8")
    return Lark(
        grammar,
        parser="lalr",
        lexer="basic",
        start=["start", "param"],
        maybe_placeholders=True,
        transformer=TreeBuilder(),
    )


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
    names = sorted(terminals, key=_rank)
    words = list(dict.fromkeys(WORDS.get(n) or f"`{spellings()[n]}`" for n in names))
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _rank(terminal: str) -> tuple[int, str]:
    """The likeliest first, then the others in a fixed order."""
    return (_FIRST.index(terminal) if terminal in _FIRST else len(_FIRST), terminal)
