"""Messages as people see them."""

from __future__ import annotations

import io

import pytest

from rpeg.ir.text.diagnostics import (
    Diagnostic,
    DiagnosticsError,
    Position,
    has_errors,
    in_order,
    render,
    show,
)

LATER = Diagnostic(Position(2, 3), "wrong", file="a")
FIRST = Diagnostic(Position(1, 5), "odd", "warning", "a")
SOURCES = {"a": "one two\r\n\tthree\n"}
TEXT = "a:1:5: warning: odd\n    one two\n        ^\na:2:3: error: wrong\n    \tthree\n    \t ^\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_order_and_carets() -> None:
    assert in_order([LATER, FIRST]) == (FIRST, LATER)
    assert render([LATER, FIRST], SOURCES) == TEXT


@pytest.mark.parametrize("at", [Position(0, 0), Position(9, 1)])
def test_places_outside_the_text_have_no_excerpt(at: Position) -> None:
    assert render([Diagnostic(at, "wrong", file="a")], SOURCES) == f"a:{at}: error: wrong\n"


def test_only_errors_are_errors() -> None:
    assert has_errors([FIRST, LATER])
    assert not has_errors([FIRST])


def test_plain_where_no_terminal_is(capsys: pytest.CaptureFixture[str]) -> None:
    show([LATER, FIRST], SOURCES)
    assert capsys.readouterr().err == TEXT


def test_colour_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    show([LATER], SOURCES, stream)
    assert "\x1b[1;31m error: \x1b[0m" in stream.getvalue()


def test_the_exception_says_it_all() -> None:
    assert str(DiagnosticsError([LATER, FIRST])) == "a:1:5: warning: odd\na:2:3: error: wrong"
