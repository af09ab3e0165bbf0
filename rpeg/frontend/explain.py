"""What to say about a line that doesn't fit: the first rule that knows the mistake answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from lark import Token

from rpeg.frontend.build import end_of, start_of
from rpeg.frontend.grammar import alternatives, keywords
from rpeg.ir.text.diagnostics import Diagnostic, Position

HEADER = "a file begins with the line `rpeg 0.1`"
_CLOSING = {"LPAR": ")", "LSQB": "]"}
_DECLARING = frozenset({"MODEL", "DATA", "VERIFIER", "TOOL", "STATE", "PARAM", "ALLOW"})
_VALUES = frozenset({"NAME", "INT", "FLOAT", "STRING", "PARAM_NAME"})


@dataclass(frozen=True)
class Break:
    """A logical line, and the first token of it that can't stand where it stands."""

    line: Sequence[Token]
    position: int
    accepts: frozenset[str]
    """The terminals that could stand there instead."""
    depth: int
    """Open blocks around the line."""

    @property
    def token(self) -> Token:
        return self.line[self.position]

    @property
    def before(self) -> Token | None:
        return self.line[self.position - 1] if self.position else None

    @property
    def here(self) -> Position:
        return start_of(self.token)

    @property
    def gap(self) -> Position:
        """Where something is missing: right after the token before."""
        return self.here if self.before is None else end_of(self.before)

    @cached_property
    def bracket(self) -> Token | None:
        """The innermost bracket of the line that is still open."""
        open_: list[Token] = []
        for token in self.line[: self.position]:
            if token.type in _CLOSING:
                open_.append(token)
            elif token.type in ("RPAR", "RSQB") and open_:
                open_.pop()
        return open_[-1] if open_ else None

    def after(self, terminal: str) -> bool:
        """Whether a token of this terminal stands right before."""
        return self.before is not None and self.before.type == terminal


def explain(broken: Break) -> Diagnostic:
    """One message for one broken line: what was found, what to write."""
    for rule in _RULES:
        if diagnostic := rule(broken):
            return diagnostic
    expected = alternatives(broken.accepts)
    return Diagnostic(broken.here, f"expected {expected}, found `{broken.token}`")


def _line_ends_early(b: Break) -> Diagnostic | None:
    if b.token.type != "_NL":
        return None
    if b.bracket is None or not b.accepts & {"RPAR", "RSQB"}:
        expected = alternatives(b.accepts)
        return Diagnostic(b.gap, f"expected {expected}, found the end of the line")
    missing = f"expected `,` or `{_CLOSING[b.bracket.type]}` at the end of the line"
    same_line = b.bracket.line == b.gap.line
    place = f"column {b.bracket.column}" if same_line else str(start_of(b.bracket))
    reason = f"the `{b.bracket}` of {place} is open"
    return Diagnostic(b.gap, f"{missing}: {reason}; a line goes on only after `(`, `[` or `,`")


def _bracket_before_brace(b: Break) -> Diagnostic | None:
    if b.token.type != "RBRACE" or b.bracket is None:
        return None
    message = f"this `{b.bracket}` is not closed before line {b.token.line}"
    return Diagnostic(start_of(b.bracket), message)


def _second_statement(b: Break) -> Diagnostic | None:
    ended = b.after("RPAR") or b.after("LBRACE") or b.after("RBRACE")
    if not ended or b.token.type != "NAME" or "_NL" not in b.accepts:
        return None
    return Diagnostic(b.here, f"one statement a line: put `{b.token}` on a line of its own")


def _reserved_word(b: Break) -> Diagnostic | None:
    if "NAME" not in b.accepts or b.token not in keywords():
        return None
    advice = f"write for example `{b.token}_`"
    return Diagnostic(b.here, f"`{b.token}` is a reserved word and can't be a name; {advice}")


def _header(b: Break) -> Diagnostic | None:
    first = b.line[0]
    if "RPEG" not in b.accepts and not (first.type == "RPEG" and b.position):
        return None
    return Diagnostic(start_of(first), HEADER)


def _declared_late(b: Break) -> Diagnostic | None:
    if b.depth != 1 or b.token.type not in _DECLARING:
        return None
    order = "the order is declarations, step, expect, plan"
    return Diagnostic(b.here, f"`{b.token}` comes before `step`: {order}")


def _dictionary(b: Break) -> Diagnostic | None:
    if b.token.type != "LBRACE" or not b.after("EQUAL"):
        return None
    advice = "a group of settings is a call, for example adamw(lr=1e-6)"
    return Diagnostic(b.here, f"there are no dictionaries: {advice}")


def _missing_comma(b: Break) -> Diagnostic | None:
    if b.token.type not in _VALUES or "COMMA" not in b.accepts or b.bracket is None:
        return None
    return Diagnostic(b.gap, f"expected `,` before `{b.token}`")


def _double_equal(b: Break) -> Diagnostic | None:
    if b.token.type != "EQUAL" or not b.after("EQUAL"):
        return None
    return Diagnostic(b.here, "a setting is written name=value with one `=`")


def _endless_step(b: Break) -> Diagnostic | None:
    if b.line[0].type != "STEP" or "LESSTHAN" not in b.accepts:
        return None
    message = f"a step says how many times it runs: step {b.line[1]} < 500 {{"
    return Diagnostic(b.here, message)


def _quoted_number(b: Break) -> Diagnostic | None:
    number = b.token[1:-1]
    if b.token.type != "STRING" or "INT" not in b.accepts or not number.isdecimal():
        return None
    return Diagnostic(b.here, f"expected a number, found text: write {number}, without quotes")


_RULES = (
    _line_ends_early,
    _bracket_before_brace,
    _second_statement,
    _reserved_word,
    _header,
    _declared_late,
    _dictionary,
    _missing_comma,
    _double_equal,
    _endless_step,
    _quoted_number,
)
