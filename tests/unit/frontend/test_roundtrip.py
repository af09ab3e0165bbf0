"""Text and tree say the same: whatever is rendered parses to what it was rendered from."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from rpeg.frontend import ast
from rpeg.frontend.format import format_source
from rpeg.frontend.parse import parse
from rpeg.frontend.render import render
from tests.unit.frontend.strategies import COMMENT, FILES, commented


@settings(max_examples=30)
@given(FILES)
def test_rendered_text_parses_to_its_tree_and_is_canonical(file: ast.File) -> None:
    text = render(file)
    assert parse(text, "f") == (file, [])
    assert format_source(text, "f") == text


@settings(max_examples=30)
@given(FILES, st.data())
def test_formatting_keeps_comments_and_settles_at_once(file: ast.File, data: st.DataObject) -> None:
    text = data.draw(commented(render(file)))
    formatted = format_source(text, "f")
    assert formatted.count(COMMENT) == text.count(COMMENT)
    assert parse(formatted, "f") == (file, [])
    assert format_source(formatted, "f") == formatted
