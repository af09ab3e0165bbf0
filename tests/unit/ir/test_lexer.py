"""The tokens of MLIR text are xDSL's, found quicker."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from xdsl.utils.exceptions import ParseError
from xdsl.utils.lexer import Input
from xdsl.utils.mlir_lexer import MLIRLexer, MLIRTokenKind

from rpeg.ir.text.lexer import Lexer

TEXTS = sorted((Path(__file__).parents[2] / "filecheck").rglob("*.mlir"))
PIECES = (
    *(" ", "\t", "\n", "// a %b\n", "//", "/", "\f", "\x1f", "\u00a0", ""),
    *("rpeg.step", "_9", "a$.b", "bb-1", "\u00e9t\u00e9", "a\u00e9", "i64", "$x", "0xi32", "0xFF"),
    *("%a", "%0", "%0a", "%-x", "% a", "%", "^bb0", "@a", '@"b"', "#a.b", "!t", "#-}", "{-#"),
    *("->", "-", "...", ".", ":", "::", ",", "(", ")", "{", "}", "[", "]", "<", ">", "=", "+"),
    *("*", "?", "|", "1.5e-3", "12", '"text"', '"\\n"', '"open\n', ";", "~"),
)


def tokens(lexer: MLIRLexer) -> list[object]:
    """Kinds and places of the tokens of a text, or where it has none."""
    found: list[object] = []
    try:
        while (token := lexer.lex()).kind is not MLIRTokenKind.EOF:
            found.append((token.kind, token.span.start, token.span.end))
    except ParseError as error:
        found.append((error.msg, error.span.start))
    return found


def check(text: str) -> None:
    ours, theirs = (tokens(kind(Input(text, "f"))) for kind in (Lexer, MLIRLexer))
    assert ours == theirs, text


@pytest.mark.parametrize("path", TEXTS, ids=lambda p: p.name)
def test_files(path: Path) -> None:
    check(path.read_text(encoding="utf-8"))


def test_random_texts() -> None:
    seed = random.randrange(2**32)
    dice = random.Random(seed)
    print("seed", seed)
    for _ in range(3000):
        check("".join(dice.choices(PIECES, k=8)))


def test_escapes_that_spell_text() -> None:
    kinds = [Lexer(Input(text, "f")).lex().kind for text in ('"\\C3\\A9"', '"\\C3"')]
    assert kinds == [MLIRTokenKind.STRING_LIT, MLIRTokenKind.BYTES_LIT]
