"""Text to syntax tree, with every syntax error of the text in one run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import cast

from lark import Token

from rpeg.frontend import ast
from rpeg.frontend.build import start_of
from rpeg.frontend.explain import HEADER
from rpeg.frontend.grammar import parser
from rpeg.frontend.recovery import Recovery
from rpeg.frontend.tokens import literal_faults, nesting_faults, tokenize
from rpeg.ir.text.diagnostics import Diagnostic, Position, in_order

VERSION = "0.1"
"""The version of the language that this front end reads."""


def parse(text: str, filename: str) -> tuple[ast.File | None, list[Diagnostic]]:
    """The tree of a text, or what is wrong with it, in the order of the text.

    `filename` is what messages call the text. There is a tree exactly if there are no messages.
    """
    tokens, diagnostics = tokenize(normalised(text))
    if (start := _other_language(tokens, diagnostics)) is not None:
        return None, [Diagnostic(start, HEADER, file=filename)]
    recovery = Recovery()
    recovery.run(tokens)
    diagnostics += recovery.diagnostics
    diagnostics += [*_other_version(tokens), *literal_faults(tokens), *nesting_faults(tokens)]
    diagnostics = _first_of_each_line(diagnostics)
    diagnostics += recovery.unfinished(known=bool(diagnostics))
    if not diagnostics:
        return _build(tokens), []
    return None, [replace(d, file=filename) for d in in_order(diagnostics)]


def _other_language(tokens: Sequence[Token], illegal: Sequence[Diagnostic]) -> Position | None:
    """Where a text begins that is not a pipeline at all; nothing else is reported then."""
    words = [token for token in tokens if token.type != "_NL"]
    kinds = [token.type for token in words[:2]]
    if kinds[:1] in (["RPEG"], ["PIPELINE"]) or kinds in (["NAME", "FLOAT"], ["NAME", "INT"]):
        return None
    starts = [start_of(words[0])] if words else []
    return min([*starts, *(diagnostic.at for diagnostic in illegal)], default=None)


def _other_version(tokens: Sequence[Token]) -> Iterator[Diagnostic]:
    """A text of another version of the language says so in its first line."""
    head = [token for token in tokens[:3] if token.type != "_NL"]
    if [token.type for token in head[:2]] == ["RPEG", "FLOAT"] and head[1] != VERSION:
        text = f"rpeg {head[1]} is not known here: write `rpeg {VERSION}`"
        yield Diagnostic(start_of(head[1]), text)


def normalised(text: str) -> str:
    r"""Lines end with `\n`, the last one too."""
    text = text.replace("\r\n", "\n")
    return text if text.endswith("\n") else text + "\n"


def _first_of_each_line(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Later messages about a line mostly follow from its first."""
    first: dict[int, Diagnostic] = {}
    for diagnostic in in_order(diagnostics):
        first.setdefault(diagnostic.at.line, diagnostic)
    return list(first.values())


def _build(tokens: Iterable[Token]) -> ast.File:
    interactive = parser().parse_interactive("", start="start")
    for token in tokens:
        interactive.feed_token(token)
    return cast(ast.File, interactive.feed_eof())
