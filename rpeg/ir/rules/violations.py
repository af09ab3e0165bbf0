"""A broken rule, and which part of the operation it is about."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple

from xdsl.utils.exceptions import VerifyException

from rpeg.ir.near import near
from rpeg.ir.rules.codes import Code

Part = Literal["op", "operand", "result", "setting", "clause"]


class Anchor(NamedTuple):
    """A part of an operation: the whole, operand or result number, setting name, clause number."""

    part: Part = "op"
    key: int | str = 0


WHOLE = Anchor()


@cache
def operand(index: int) -> Anchor:
    """Operand number `index`."""
    return Anchor("operand", index)


@cache
def result(index: int) -> Anchor:
    """Result number `index`."""
    return Anchor("result", index)


@cache
def setting(name: str) -> Anchor:
    """The value of setting `name`; `optim.lr` is one inside a record."""
    return Anchor("setting", name)


def clause(index: int) -> Anchor:
    """Clause number `index` of a plan's line."""
    return Anchor("clause", index)


@dataclass(frozen=True)
class Violation:
    """One broken rule, and how it is broken here."""

    code: Code
    message: str
    anchor: Anchor = WHOLE
    severity: Literal["error", "warning", "note"] = "error"


class RuleBroken(VerifyException):
    """Raised by an operation's own verifier for the first broken rule."""

    def __init__(self, violation: Violation) -> None:
        super().__init__(violation.message)
        self.violation = violation


def hint(word: str, choices: Iterable[str]) -> str:
    """`; did you mean ...?` where one of the choices is near, else nothing."""
    close = near(word, choices)
    return f"; did you mean `{close[0]}`?" if close else ""
