"""Messages for lines that don't parse: the first rule that recognises the mistake answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from lark import Token

from rpeg.frontend.build import end_of, start_of
from rpeg.frontend.grammar import alternatives, keywords
from rpeg.ir.rules.violations import hint
from rpeg.ir.text.diagnostics import Diagnostic, Position
from rpeg.ir.vocabulary.tables import constructors, operations

HEADER = "a file begins with the line `rpeg 0.1`"
_CLOSING = {"LPAR": ")", "LSQB": "]"}
_DECLARING = frozenset({"MODEL", "DATA", "VERIFIER", "TOOL", "STATE", "PARAM", "ALLOW"})
_VALUES = frozenset({"NAME", "INT", "FLOAT", "STRING", "PARAM_NAME", "QUANTITY"})
_KINDS = ("model", "data", "verifier", "tool", "state")
_STATEMENTS = (*_KINDS, "param", "allow", "step", "expect", "plan", "pool", "pipeline")


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
    return Diagnostic(b.gap, f"{missing}: {reason}; a line continues only after `(`, `[` or `,`")


def _bracket_before_brace(b: Break) -> Diagnostic | None:
    if b.token.type != "RBRACE" or b.bracket is None:
        return None
    message = f"this `{b.bracket}` is not closed before line {b.token.line}"
    return Diagnostic(start_of(b.bracket), message)


def _misspelt_keyword(b: Break) -> Diagnostic | None:
    """`verifer correct = ...`: an unknown word followed by a name, as a keyword would be."""
    if b.position > 1 or len(b.line) < 2 or [t.type for t in b.line[:2]] != ["NAME", "NAME"]:
        return None
    word = b.line[0]
    near = hint(word.lower(), _STATEMENTS)
    return Diagnostic(start_of(word), f"`{word}` begins no line{near}") if near else None


def _kind_missing(b: Break) -> Diagnostic | None:
    """`actor = policy(...)` and `size = 8`, among the declarations."""
    kinds = [token.type for token in b.line[:3]]
    if b.depth != 1 or b.position or "MODEL" not in b.accepts or kinds[:2] != ["NAME", "EQUAL"]:
        return None
    name, value = b.line[0], b.line[2]
    held = next((k for k in _KINDS if value in constructors(k)), None)
    kind = held if kinds[2] == "NAME" else "param"
    if kind is None:
        return None
    return Diagnostic(b.here, f"a declaration begins with its kind: {kind} {name} = {value}...")


def _no_brackets(b: Break) -> Diagnostic | None:
    """`every steps=3 {`: a call without its brackets."""
    called = b.before
    if called is None or called.type != "NAME" or "LPAR" not in b.accepts:
        return None
    if b.token.type in ("EQUAL", "_NL") or called not in operations():
        return None
    text = f"operands and settings stand in brackets: write {called}(...)"
    return Diagnostic(b.gap, text)


def _bracket_in_front(b: Break) -> Diagnostic | None:
    if b.token.type != "LPAR" or b.position or "NAME" not in b.accepts or b.depth < 2:
        return None
    return Diagnostic(b.here, "names of results have no brackets: write y, lp = ...")


def _version(b: Break) -> Diagnostic | None:
    """`actor[i+1]`, `actor@(i+1)` and `actor@i-1..i`."""
    if b.token.type == "LSQB" and b.after("NAME") and "AT" in b.accepts:
        return Diagnostic(b.here, f"a version is written with @: {b.before}@i+1")
    if b.token.type == "LPAR" and b.after("AT"):
        return Diagnostic(b.here, "a version has no brackets: write @i+1")
    behind = next((t for t in reversed(b.line[: b.position]) if t.type in ("AT", "COMMA")), None)
    if b.token.type == "TO" and behind is not None and behind.type == "AT":
        return Diagnostic(start_of(behind), "a window of versions has brackets: @[i-1..i]")
    return None


def _arithmetic(b: Break) -> Diagnostic | None:
    if b.token.type != "SIGN":
        return None
    if b.after("NAME") and "AT" in b.accepts and b.bracket is None:
        return Diagnostic(b.here, "a name has the letters a to z, digits and `_`")
    if b.bracket is None or "COMMA" not in b.accepts:
        return None
    what = "a range is written a..b" if "TO" in b.accepts else "write the value itself"
    return Diagnostic(b.here, f"there is no arithmetic: {what}")


def _less_or_equal(b: Break) -> Diagnostic | None:
    if b.line[0].type != "STEP" or not b.after("LESSTHAN") or b.token.type != "EQUAL":
        return None
    return Diagnostic(b.here, "a step counts from 0 and ends below its number: step i < 500 {")


def _no_call(b: Break) -> Diagnostic | None:
    """`q = 64`: something other than a call after `=`."""
    if not b.after("EQUAL") or b.bracket is not None or b.accepts != {"NAME"}:
        return None
    if b.token.type not in _VALUES:
        return None
    return Diagnostic(b.here, f"expected a call, name(...), found `{b.token}`")


def _pool_late(b: Break) -> Diagnostic | None:
    if b.token.type != "POOL" or b.position or "NAME" not in b.accepts or "STEP" in b.accepts:
        return None
    if [token.type for token in b.line[1:3]] != ["NAME", "EQUAL"]:
        return None
    return Diagnostic(b.here, "pools come before the lines of the stages")


def _goes_on(b: Break) -> Diagnostic | None:
    """A line of a plan that ends with a comma, and so goes on in the next."""
    if b.token.type != "ON" or "LPAR" not in b.accepts:
        return None
    commas = [p for p, t in enumerate(b.line[: b.position]) if t.type == "COMMA"]
    last = commas[-1] if commas else None
    if last is None or b.line[last + 1].type != "_NL":
        return None
    text = "a line continues after `,`, and the next line is another stage: remove it"
    return Diagnostic(start_of(b.line[last]), text)


def _second_statement(b: Break) -> Diagnostic | None:
    ended = b.after("RPAR") or b.after("LBRACE") or b.after("RBRACE")
    if not ended or b.token.type != "NAME" or "_NL" not in b.accepts:
        return None
    return Diagnostic(b.here, f"one statement per line: put `{b.token}` on a line of its own")


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
    inside = b.depth > 1 and not b.position and b.line[1].type in ("NAME", "DATA")
    if b.token.type not in _DECLARING or not (b.depth == 1 or inside):
        return None
    order = "the order is declarations, step, expect, plan"
    return Diagnostic(b.here, f"`{b.token}` comes before `step`: {order}")


def _dictionary(b: Break) -> Diagnostic | None:
    if b.token.type != "LBRACE" or not b.after("EQUAL"):
        return None
    advice = "a group of settings is a call, for example adamw(lr=1e-6)"
    return Diagnostic(b.here, f"there are no dictionaries: {advice}")


def _missing_comma(b: Break) -> Diagnostic | None:
    results = b.position == 1 and b.after("NAME") and b.line[-2:-1] and b.line[2].type == "EQUAL"
    if results and b.token.type == "NAME" and {"COMMA", "AT"} <= b.accepts:
        return Diagnostic(b.gap, f"expected `,` before `{b.token}`")
    if b.token.type not in _VALUES or "COMMA" not in b.accepts or b.bracket is None:
        return None
    named = b.after("NAME") and b.line[b.position - 2].type in ("COMMA", "LPAR", "_NL")
    if named and b.token.type != "NAME" and "EQUAL" in b.accepts:
        return Diagnostic(b.gap, f"expected `=` or `,` before `{b.token}`")
    return Diagnostic(b.gap, f"expected `,` before `{b.token}`")


def _double_equal(b: Break) -> Diagnostic | None:
    if b.token.type != "EQUAL" or not b.after("EQUAL"):
        return None
    return Diagnostic(b.here, "a setting is written name=value with one `=`")


def _endless_step(b: Break) -> Diagnostic | None:
    if b.line[0].type != "STEP" or not b.accepts & {"LESSTHAN", "NAME"} or b.position > 2:
        return None
    if b.token.type == "EQUAL":
        return None
    index = b.line[1] if b.line[1].type == "NAME" else "i"
    message = f"a step says how many times it runs: step {index} < 500 {{"
    return Diagnostic(b.here, message)


def _quoted_number(b: Break) -> Diagnostic | None:
    number = b.token[1:-1]
    if b.token.type != "STRING" or "INT" not in b.accepts or not number.isdecimal():
        return None
    return Diagnostic(b.here, f"expected a number, found text: write {number}, without quotes")


def _signed_quantity(b: Break) -> Diagnostic | None:
    if b.token.type != "QUANTITY" or b.before is None or b.before.type != "SIGN":
        return None
    message = f"a number with a unit has no sign: write {b.token}, without `{b.before}`"
    return Diagnostic(start_of(b.before), message)


_RULES = (
    _line_ends_early,
    _bracket_before_brace,
    _misspelt_keyword,
    _kind_missing,
    _no_brackets,
    _bracket_in_front,
    _version,
    _arithmetic,
    _less_or_equal,
    _pool_late,
    _goes_on,
    _second_statement,
    _header,
    _declared_late,
    _endless_step,
    _reserved_word,
    _dictionary,
    _missing_comma,
    _double_equal,
    _quoted_number,
    _signed_quantity,
    _no_call,
)
