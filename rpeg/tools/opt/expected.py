"""`--verify-diagnostics`: messages that a file expects, as comments of its lines.

`// expected-error {{text}}` or `# expected-warning@+1:13 {{text}}`: a message of this kind that
contains the text, on this line or one so many below (`@-1`: above), at this column if one is given.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rpeg.ir.diagnostics import Diagnostic, Position

_EXPECTED = re.compile(
    r"expected-(?P<severity>error|warning|note)"
    r"(?:@(?P<offset>[+-]\d+)?(?::(?P<column>\d+))?)?"
    r"[ \t]*\{\{(?P<text>.*?)\}\}"
)


@dataclass(frozen=True)
class Expected:
    """One expected message."""

    severity: str
    line: int
    column: int | None
    text: str
    at: Position
    """Where the comment stands."""

    def matches(self, found: Diagnostic) -> bool:
        """Whether a message is this one."""
        return (
            found.severity == self.severity
            and found.at.line == self.line
            and self.column in (None, found.at.column)
            and self.text in found.message
        )


def expectations(text: str) -> Iterator[Expected]:
    """The expected messages of a text."""
    for number, line in enumerate(text.split("\n"), 1):
        for match in _EXPECTED.finditer(line):
            column = int(match["column"]) if match["column"] else None
            wanted = number + int(match["offset"] or 0)
            at = Position(number, match.start() + 1)
            yield Expected(match["severity"], wanted, column, match["text"], at)


def mismatches(text: str, found: Sequence[Diagnostic], file: str) -> list[Diagnostic]:
    """An error for each expected message that is not there, and each there that is not expected."""
    rest = list(found)
    problems: list[Diagnostic] = []
    for expected in expectations(text):
        match = next((d for d in rest if expected.matches(d)), None)
        if match is not None:
            rest.remove(match)
            continue
        place = f"{expected.line}" + (f":{expected.column}" if expected.column else "")
        message = f"expected {expected.severity} at {place} was not found: {expected.text}"
        problems.append(Diagnostic(expected.at, message, file=file))
    unexpected = (
        Diagnostic(d.at, f"unexpected {d.severity}: {d.message}", file=file) for d in rest
    )
    return [*problems, *unexpected]
