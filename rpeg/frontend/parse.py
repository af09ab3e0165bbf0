"""Text to syntax tree, with every syntax error of the text in one run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import cast

from lark import Token

from rpeg.frontend import ast
from rpeg.frontend.grammar import parser
from rpeg.frontend.recovery import Recovery
from rpeg.frontend.tokens import literal_faults, nesting_faults, tokenize
from rpeg.ir.text.diagnostics import Diagnostic, in_order

VERSION = "0.1"
"""The version of the language that this front end reads."""


def parse(text: str, filename: str) -> tuple[ast.File | None, list[Diagnostic]]:
    """The tree of a text, or what is wrong with it, in the order of the text.

    `filename` is what messages call the text. There is a tree exactly if there are no messages.
    """
    tokens, diagnostics = tokenize(normalised(text))
    recovery = Recovery()
    recovery.run(tokens)
    diagnostics += recovery.diagnostics
    diagnostics += [*literal_faults(tokens), *nesting_faults(tokens)]
    diagnostics = _first_of_each_line(diagnostics)
    diagnostics += recovery.unfinished(known=bool(diagnostics))
    if not diagnostics:
        file = _build(tokens)
        if file.version == VERSION:
            return file, []
        message = f"rpeg {file.version} is not known here: write `rpeg {VERSION}`"
        diagnostics = [Diagnostic(file.at, message)]
    return None, [replace(d, file=filename) for d in in_order(diagnostics)]


def normalised(text: str) -> str:
    r"""Lines end with `\n`, the last one too."""
    text = text.replace("\r\n", "\n")
    return text if text.endswith("\n") else text + "\n"


def _first_of_each_line(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """The others of a line mostly follow from its first."""
    first: dict[int, Diagnostic] = {}
    for diagnostic in in_order(diagnostics):
        first.setdefault(diagnostic.at.line, diagnostic)
    return list(first.values())


def _build(tokens: Iterable[Token]) -> ast.File:
    interactive = parser().parse_interactive("", start="start")
    for token in tokens:
        interactive.feed_token(token)
    return cast(ast.File, interactive.feed_eof())
