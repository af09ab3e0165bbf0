"""The grammar is LALR(1) without conflicts, and the words that it reserves are these."""

from __future__ import annotations

import pytest
from lark import Lark

from rpeg.frontend.grammar import keywords
from rpeg.resources import resource


def test_no_conflicts_and_no_collisions() -> None:
    pytest.importorskip("interegular", reason="Lark's strict mode compares terminals with it")
    grammar = resource("grammar/rpeg.lark").read_text(encoding="utf-8")
    Lark(grammar, parser="lalr", lexer="basic", strict=True)


def test_reserved_words() -> None:
    words = "rpeg pipeline param model data verifier tool state allow step expect plan pool on"
    assert keywords() == {*words.split(), "true", "false"}


def test_resource_that_is_not_there() -> None:
    with pytest.raises(FileNotFoundError, match=r"lacks grammar/other\.lark: install it again"):
        resource("grammar/other.lark")
