"""Every typical mistake gets its golden messages, byte for byte."""

from __future__ import annotations

import pytest

from rpeg.frontend.parse import parse
from tests.unit.frontend.mistakes import SYNTAX, expected, mistakes, shown

EXPECTED = expected()
CASES = [pytest.param(*case, id=case[0]) for case in mistakes()]


def test_every_mistake_has_messages() -> None:
    assert list(EXPECTED) == [title for title, _, _ in mistakes()]


@pytest.mark.parametrize(("title", "example", "text"), CASES[:SYNTAX])
def test_syntax(title: str, example: str, text: str) -> None:
    file, diagnostics = parse(text, f"{example}.rpeg")
    assert file is None
    assert shown(diagnostics, text) == EXPECTED[title]


@pytest.mark.parametrize(("title", "example", "text"), CASES[SYNTAX:])
def test_others_parse(title: str, example: str, text: str) -> None:
    assert parse(text, f"{example}.rpeg")[1] == []
