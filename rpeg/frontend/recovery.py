"""Finds several syntax errors in one run. The unit is the logical line.

Lines are fed to a parser that only recognises. One that doesn't fit costs one message and is
repaired, or replaced by a stand-in with the same braces, or left out, so that the next line finds
its block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from itertools import pairwise
from typing import cast

from lark import Token
from lark.exceptions import UnexpectedToken
from lark.parsers.lalr_interactive_parser import InteractiveParser

from rpeg.frontend.build import end_of, start_of
from rpeg.frontend.explain import HEADER, Break, explain
from rpeg.frontend.grammar import alternatives, parser
from rpeg.frontend.tokens import logical_lines, tokenize
from rpeg.ir.text.diagnostics import Diagnostic

REGIONS = frozenset({"every", "collect"})
"""Operations whose line must open a block."""

MOST = 50
"""Broken lines after which a run stops."""

_SECTIONS = frozenset({"STEP", "EXPECT", "PLAN", "PIPELINE"})
_OPENERS = ("step i < 1 {\n", 'plan x on "x" {\n', "x() {\n", "pipeline x {\n")
_CLOSERS = ("}\n", "x()\n}\n")
_MISSING = (("LBRACE", "{"), ("RPAR", ")"), ("RSQB", "]"))

Line = list[Token]


class Recovery:
    """The state of a run over the lines of one text."""

    def __init__(self) -> None:
        self.diagnostics: list[Diagnostic] = []
        self._parser = _recogniser()
        self._blocks: list[Token] = []  # the first tokens of the lines that opened them
        self._suspect: Token | None = None  # the first block closed by a brace in another column
        self._last: Token | None = None

    def run(self, tokens: Iterable[Token]) -> None:
        """Reads all lines, collecting messages."""
        for line in logical_lines(tokens):
            if not self._belongs_above(line):
                self._take(self._with_region(line))
            self._last = line[-1]
            if len(self.diagnostics) >= MOST:
                return

    def unfinished(self, known: bool) -> Iterator[Diagnostic]:
        """What to say if the text ends too early; `known`: other messages may explain it."""
        accepts = self._parser.accepts()
        if "$END" in accepts or len(self.diagnostics) >= MOST:
            return
        if self._blocks:
            blame = self._suspect or self._blocks[-1]
            yield _never_closed(blame, "is never closed")
        elif not known and self._last is not None:
            message = (
                HEADER
                if "RPEG" in accepts
                else f"expected {alternatives(accepts)}, found the end of the file"
            )
            yield Diagnostic(start_of(self._last), message)

    def _take(self, line: Line) -> None:
        attempt = _copy(self._parser)
        failure = _feed(attempt, line)
        if failure is None:
            self._parser = attempt
        elif not (failure == 0 and self._section_in_block(line)):
            self.diagnostics.append(self._explanation(line, failure))
            line = self._repaired(line, failure)
        self._track(line)

    def _belongs_above(self, line: Line) -> bool:
        """Whether the line before would have gone on here, if it had not ended too early: it has a
        message already, and was made whole.
        """
        above = self._last.line if self._last is not None else None
        if not self.diagnostics or self.diagnostics[-1].at.line != above:
            return False
        brace = [token.type for token in line] == ["LBRACE", "_NL"]
        inside = line[0].type in ("COMMA", "RPAR", "RSQB") and not list(_braces(line))
        return brace or inside

    def _with_region(self, line: Line) -> Line:
        """The line of an operation with a region, with its brace if that is missing."""
        called = next((a for a, b in pairwise(line) if _is_call(a, b)), None)
        if called not in REGIONS or len(line) < 3 or not _ends_in_call(line):
            return line
        end = line[-1]
        message = f"{called} has a region: end the line with `{{`"
        self.diagnostics.append(Diagnostic(end_of(line[-2]), message))
        return [*line[:-1], _borrow("LBRACE", "{", end), end]

    def _section_in_block(self, line: Line) -> bool:
        """Whether the line begins a section, too deep: then its blocks are closed first."""
        outside = 0 if line[0].type == "PIPELINE" else 1
        if line[0].type not in _SECTIONS or len(self._blocks) <= outside:
            return False
        attempt = _copy(self._parser)
        for closed in range(1, len(self._blocks) + 1):
            if _feed(attempt, _tokens("}\n", line[0])) is not None:
                return False
            after = _copy(attempt)
            if _feed(after, line) is None:
                self._close(closed, before=line[0])
                self._parser = after
                return True
        return False

    def _close(self, blocks: int, before: Token) -> None:
        blame = self._suspect or self._blocks[-1]
        self.diagnostics.append(_never_closed(blame, f"is not closed before line {before.line}"))
        del self._blocks[-blocks:]

    def _explanation(self, line: Line, failure: int) -> Diagnostic:
        attempt = _copy(self._parser)
        _feed(attempt, line[:failure])
        accepts = frozenset(attempt.accepts())
        return explain(Break(line, failure, accepts, len(self._blocks)))

    def _repaired(self, line: Line, failure: int) -> Line:
        """The line whose braces count: the first candidate that fits, or the line left out."""
        for candidate in self._candidates(line, failure):
            attempt = _copy(self._parser)
            if _feed(attempt, candidate) is None:
                self._parser = attempt
                return candidate
        return line

    def _candidates(self, line: Line, failure: int) -> Iterator[Line]:
        end = line[failure]
        if end.type == "_NL":
            for kind, text in _MISSING:
                yield [*line[:failure], _borrow(kind, text, end), *line[failure:]]
        net = sum(1 if brace.type == "LBRACE" else -1 for brace in _braces(line))
        stand_ins = _OPENERS if net > 0 else _CLOSERS if net < 0 else ("x()\n",)
        if "RPEG" in self._parser.accepts():
            header = _tokens("rpeg 0.1\n", line[0])
            yield [*header, *line]
            stand_ins = ("rpeg 0.1\npipeline x {\n",) if net > 0 else ("rpeg 0.1\n",)
        yield from (_tokens(text, line[0]) for text in stand_ins)

    def _track(self, line: Line) -> None:
        for brace in _braces(line):
            if brace.type == "LBRACE":
                self._blocks.append(line[0])
            elif self._blocks:
                opener = self._blocks.pop()
                if opener.line != brace.line and opener.column != brace.column:
                    self._suspect = self._suspect or opener


def _recogniser() -> InteractiveParser:
    """A parser at the start of a text that builds nothing, so that copies of it are cheap."""
    interactive = parser().parse_interactive("", start="start")
    state = interactive.parser_state
    state.parse_conf = copy(state.parse_conf)
    state.parse_conf.callbacks = {}
    return interactive


def _copy(state: InteractiveParser) -> InteractiveParser:
    return cast(InteractiveParser, state.copy(deepcopy_values=False))


def _feed(state: InteractiveParser, line: Line) -> int | None:
    """Advances the parser; the position of the first token that doesn't fit."""
    for position, token in enumerate(line):
        try:
            state.feed_token(token)
        except UnexpectedToken:
            return position
    return None


def _braces(line: Line) -> Iterator[Token]:
    """The braces that open and close blocks; a stray one inside a broken line does neither."""
    brackets = 0
    for position, token in enumerate(line):
        before = line[position - 1].type if position else "_NL"
        after = line[position + 1].type if position + 1 < len(line) else "_NL"
        brackets += (token.type in ("LPAR", "LSQB")) - (token.type in ("RPAR", "RSQB"))
        opens = token.type == "LBRACE" and (after == "_NL" or before == "RPAR")
        last = after == "_NL" and brackets <= 0
        closes = token.type == "RBRACE" and (before == "_NL" or last)
        if opens or closes:
            yield token


def _is_call(name: Token, bracket: Token) -> bool:
    return name.type == "NAME" and bracket.type == "LPAR"


def _ends_in_call(line: Line) -> bool:
    return line[-1].type == "_NL" and line[-2].type == "RPAR"


def _tokens(text: str, place: Token) -> Line:
    return [_borrow(t.type, t, place) for t in tokenize(text)[0]]


def _borrow(kind: str, text: str, place: Token) -> Token:
    return Token.new_borrow_pos(kind, text, place)


def _never_closed(blame: Token, how: str) -> Diagnostic:
    message = f"the block that starts here (`{blame}`) {how}: add `}}`"
    return Diagnostic(start_of(blame), message)
