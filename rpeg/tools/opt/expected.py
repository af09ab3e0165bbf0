"""`--verify-diagnostics`: messages that a file expects, as comments of its lines.

`// expected-error {{text}}` or `# expected-warning@+1:13 {{text}}`: a message of this kind that
contains the text, at this column if one is given, and on

    expected-error        the line of the comment
    expected-error@+2     so many lines below it, or above: @-1
    expected-error@below  the next line that expects nothing itself; @above: the one before

Kinds are error, warning and note; remark is another word for note.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rpeg.ir.text.diagnostics import Diagnostic, Position

_KINDS = {"error": "error", "warning": "warning", "note": "note", "remark": "note"}
_EXPECTED = re.compile(
    r"expected-(?P<kind>error|warning|note|remark)"
    r"(?:@(?P<where>[+-]\d+|above|below)?(?::(?P<column>\d+))?)?"
    r"[ \t]*\{\{(?P<text>.*?)\}\}"
)
_MEANT = re.compile(
    r"(?://|#).*?\bexpected-(?:(?:error|warning|note|remark)\b"
    r"|(?P<unknown>\w+)(?:@\S*)?[ \t]*\{\{)"
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

    def matches(self, found: Diagnostic, file: str) -> bool:
        """Whether a message is this one."""
        return (
            found.severity == self.severity
            and found.file == file
            and found.at.line == self.line
            and self.column in (None, found.at.column)
            and self.text in found.message
        )


def expectations(text: str) -> Iterator[Expected]:
    """The expected messages of a text."""
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        for match in _EXPECTED.finditer(line):
            column = int(match["column"]) if match["column"] else None
            wanted = _line(match["where"], number, lines)
            at = Position(number, match.start() + 1)
            yield Expected(_KINDS[match["kind"]], wanted, column, match["text"], at)


def _line(where: str | None, number: int, lines: Sequence[str]) -> int:
    if where not in ("above", "below"):
        return number + int(where or 0)
    step = 1 if where == "below" else -1
    number += step
    while 1 <= number <= len(lines) and _EXPECTED.search(lines[number - 1]):
        number += step
    return number


def mismatches(text: str, found: Sequence[Diagnostic], file: str) -> list[Diagnostic]:
    """An error for each expected message that is not there, each there that is not expected, and
    each comment that looks like an expectation and is none.
    """
    rest = list(found)
    problems = list(_malformed(text, file))
    last = len(text.splitlines())
    for expected in expectations(text):
        match = next((d for d in rest if expected.matches(d, file)), None)
        if match is not None:
            rest.remove(match)
            continue
        place = f"{expected.line}" + (f":{expected.column}" if expected.column else "")
        message = f"expected {expected.severity} at {place} was not found: {expected.text}"
        if not 1 <= expected.line <= last:
            message += f" (the text has lines 1 to {last})"
        problems.append(Diagnostic(expected.at, message, file=file))
    unexpected = (
        replace(d, message=f"unexpected {d.severity}: {d.message}", severity="error") for d in rest
    )
    return [*problems, *unexpected]


def _malformed(text: str, file: str) -> Iterator[Diagnostic]:
    for number, line in enumerate(text.split("\n"), 1):
        meant = _MEANT.search(line)
        if meant is not None and not _EXPECTED.search(line):
            message = "an expectation is written expected-error@+1:13 {{text}}, @ and {{text}} "
            message += "in one line; @+1, @-1, @above, @below and the column may be left out"
            if meant["unknown"]:
                message = f"`{meant['unknown']}` is not a kind of message: {', '.join(_KINDS)}"
            yield Diagnostic(Position(number, meant.start() + 1), message, file=file)
