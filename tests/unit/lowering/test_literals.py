"""String literals of generated programs: any text, on one line, whatever it holds."""

from __future__ import annotations

import ast

from hypothesis import given
from hypothesis import strategies as st
from xdsl.dialects.builtin import ArrayAttr, StringAttr

from rpeg.ir.types.attributes import BytesAttr, RecordAttr, SecondsAttr, plain
from rpeg.lowering.literals import literal, quoted

TEXTS = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\"'\\\n\u2028{}"))


@given(TEXTS)
def test_a_literal_is_its_text(text: str) -> None:
    written = quoted(text)
    assert ast.literal_eval(written) == text
    assert written.isprintable()


@given(TEXTS)
def test_the_quotes_that_need_fewer_escapes(text: str) -> None:
    single = text.count('"') > text.count("'")
    assert quoted(text)[0] == ("'" if single else '"')


def test_values() -> None:
    assert [literal(plain(v)) for v in (True, 8, 0.2, "a", 1e-06)] == [
        *("True", "8", "0.2", '"a"', "1e-06")
    ]
    assert literal(SecondsAttr.of(10.0)) == "10.0"
    assert literal(BytesAttr.of(512)) == "512"
    assert literal(plain(float("-inf"))) == 'float("-inf")'
    assert literal(RecordAttr.make("constant", {"tokens": plain(7)})) == '("constant", 7)'


def test_lists_and_the_tuple_of_stops() -> None:
    one = ArrayAttr([StringAttr("a")])
    assert literal(one, "weights") == '["a"]'
    assert literal(one, "stop") == '("a",)'
    assert literal(ArrayAttr([StringAttr("a"), StringAttr("b")]), "stop") == '("a", "b")'
