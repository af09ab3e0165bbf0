"""What a syntax tree leaves out of its text and a formatter keeps: comments and blank lines."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rpeg.ir.text.diagnostics import Position

_TEXT_OR_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|(#[^\n]*)')


@dataclass(frozen=True)
class Comment:
    """A comment, from its `#` to the end of the line."""

    at: Position
    text: str


class Trivia:
    """Comments in the order of the text, handed out once each, and where lines are blank."""

    def __init__(self, comments: Iterable[Comment] = (), blank: Iterable[int] = ()) -> None:
        self._comments = deque(comments)
        self._blank = frozenset(blank)

    @classmethod
    def of(cls, text: str) -> Trivia:
        r"""The trivia of a text that parses; its lines end with `\n`."""
        lines = text.split("\n")
        blank = (number for number, line in enumerate(lines, 1) if not line.strip())
        return cls(_comments(lines), blank)

    def before(self, place: Position) -> list[Comment]:
        """Takes the comments up to a place."""
        taken = []
        while self._comments and self._comments[0].at < place:
            taken.append(self._comments.popleft())
        return taken

    def rest(self) -> list[Comment]:
        """Takes all that are left."""
        taken = list(self._comments)
        self._comments.clear()
        return taken

    def trailing(self, line: int, before: Position | None = None) -> str:
        """Takes the comment that ends a line of the text, with two spaces before it; or nothing."""
        if not self._comments or self._comments[0].at.line != line:
            return ""
        if before is not None and self._comments[0].at > before:
            return ""
        return f"  {self._comments.popleft().text}"

    def within(self, start: Position, end: Position) -> bool:
        """Whether a comment not yet taken stands between two places."""
        return any(start < comment.at < end for comment in self._comments)

    def blank_above(self, place: Position) -> bool:
        """Whether the line above a place is blank."""
        return place.line - 1 in self._blank


def _comments(lines: Iterable[str]) -> Iterator[Comment]:
    for number, line in enumerate(lines, 1):
        for match in _TEXT_OR_COMMENT.finditer(line):
            if match[1]:
                yield Comment(Position(number, match.start() + 1), match[1].rstrip())
