"""Text to tokens and logical lines; a character that begins no token costs one message."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from lark import Token
from lark.exceptions import UnexpectedCharacters
from lark.lexer import LexerState

from rpeg.frontend.build import start_of
from rpeg.frontend.grammar import parser
from rpeg.frontend.literals import faults
from rpeg.ir.text.diagnostics import Diagnostic, Position

DEEPEST = 16
"""Brackets and blocks inside each other; far more than any pipeline needs."""

_ADVICE = {
    ";": "a statement ends with its line: remove the `;`",
    "'": 'text is written in double quotes: "..."',
    ":": "a range is written a..b; a setting is written name=value",
    "*": "there is no arithmetic: write the value itself",
    "/": "there is no arithmetic: write the value itself",
    "%": "write a share as a number, 0.9",
    '"': "the string is not closed on its line",
    ".": "a range is written a..b, a number 0.5",
    "\ufeff": "remove the byte-order mark: save the file as plain UTF-8",
}
_NAMES = re.compile(r"[A-Za-z_]\.[A-Za-z_]")
_QUOTED = re.compile(r"'([^'\"\\\n]*)'")
_UNCLOSED = re.compile(r'"[^\n]*?(?=[ \t]*\{?[ \t]*\n)')
_CONTINUES = frozenset({"LPAR", "LSQB", "COMMA"})
_DEPTH = {"LPAR": 1, "LSQB": 1, "LBRACE": 1, "RPAR": -1, "RSQB": -1, "RBRACE": -1}


def tokenize(text: str) -> tuple[list[Token], list[Diagnostic]]:
    """The tokens of a text whose last line is ended, and messages for the characters left out."""
    tokens: list[Token] = []
    diagnostics: list[Diagnostic] = []
    interactive = parser().parse_interactive(text, start="start")
    lexer = interactive.lexer_thread
    place = cast(LexerState, lexer.state).line_ctr
    while True:
        try:
            for token in lexer.lex(interactive.parser_state):
                tokens.append(token)
            return tokens, diagnostics
        except UnexpectedCharacters:
            at = Position(place.line, place.column)
            diagnostics.append(Diagnostic(at, _advice(text, place.char_pos)))
            skipped, string = _skip(text, place.char_pos)
            place.feed(skipped)
            if string is not None:
                tokens.append(_string_at(at, string, len(skipped)))


def _advice(text: str, at: int) -> str:
    """What to write in place of a character that begins no token."""
    character, after = text[at], text[at + 1 :].partition("\n")[0].lstrip()
    if character == ":" and (not after or after[0] in "#{"):
        return "a block stands in braces: end this line with `{`"
    if character == "." and _NAMES.match(text, at - 1):
        return "a name has no dots; text is written in double quotes"
    if character.isalpha():
        return "a name has the letters a to z, digits and `_`"
    return _ADVICE.get(character, f"the character {character!r} has no meaning here")


def _skip(text: str, start: int) -> tuple[str, str | None]:
    """The characters to leave out, and the text literal that they were meant to be."""
    if quoted := _QUOTED.match(text, start):
        return quoted[0], f'"{quoted[1]}"'
    if unclosed := _UNCLOSED.match(text, start):
        return unclosed[0], '""'
    return text[start], None


def _string_at(at: Position, string: str, width: int) -> Token:
    return Token(
        "STRING",
        string,
        line=at.line,
        column=at.column,
        end_line=at.line,
        end_column=at.column + width,
    )


def logical_lines(tokens: Iterable[Token]) -> Iterator[list[Token]]:
    """Statements: a line of text goes on after `(`, `[` or `,`."""
    line: list[Token] = []
    for token in tokens:
        line.append(token)
        if token.type == "_NL" and not (len(line) > 1 and line[-2].type in _CONTINUES):
            yield line
            line = []
    if line:
        yield line


def literal_faults(tokens: Iterable[Token]) -> Iterator[Diagnostic]:
    """Bad escapes, unknown units, numbers that don't fit."""
    for token in tokens:
        start = start_of(token)
        for offset, message in faults(token.type, token):
            yield Diagnostic(Position(start.line, start.column + offset), message)


def nesting_faults(tokens: Sequence[Token]) -> Iterator[Diagnostic]:
    """The first bracket that is too deep inside others."""
    depth = 0
    for token in tokens:
        depth = max(0, depth + _DEPTH.get(token.type, 0))
        if depth > DEEPEST:
            message = f"brackets stand at most {DEEPEST} deep in each other"
            yield Diagnostic(start_of(token), message)
            return
