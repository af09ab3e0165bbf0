"""The parser of MLIR text: where things stand, and what is said of a broken text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rpeg.ir.dialect import OPERATIONS
from rpeg.ir.rules import violations
from rpeg.ir.rules.verify import diagnose
from rpeg.ir.text.diagnostics import Position
from rpeg.ir.text.parse import parse_module

DIALECT = Path(__file__).parents[2] / "filecheck" / "dialect"
TEXT = """rpeg.pipeline @p {
  rpeg.data @train prompts("y")
  rpeg.model @actor policy("x") {optim = #rpeg.record<adamw, {lr = 1.0, "beta1" = 2.0}>}
  rpeg.step i < 3 (%train : !rpeg.cursor<@train, prompts>) {
    %q, %c = rpeg.batch %train {size = 4}
    %a, %b = "rpeg.batch"(%c) <{size = 4 : i64}> : (!rpeg.cursor<@train, prompts>) -> (f32, f32)
    rpeg.yield %c
  }
}
"""


def place(line: int, text: str) -> Position:
    return Position(line, TEXT.splitlines()[line - 1].index(text) + 1)


def test_places_of_parts() -> None:
    module, sources, _ = parse_module(TEXT, "f")
    assert module is not None
    custom, generic = (op for op in module.walk() if op.name == "rpeg.batch")
    assert sources.position(custom) == place(5, "%q")
    assert sources.position(custom, violations.operand(0)) == place(5, "%train")
    assert sources.position(custom, violations.result(1)) == place(5, "%c")
    assert sources.position(custom, violations.setting("size")) == place(5, "size")
    assert sources.position(generic, violations.operand(0)) == place(6, "%c)")
    assert sources.position(generic, violations.setting("size")) == place(6, "size")
    model = next(op for op in module.walk() if op.name == "rpeg.model")
    assert sources.position(model, violations.setting("optim.lr")) == place(3, "lr")
    assert sources.position(model, violations.setting("optim.beta1")) == place(3, '"beta1"')


def test_places_far_down_a_file() -> None:
    module, sources, _ = parse_module("\n" * 50_000 + "rpeg.checkpoint\n" * 3, "f")
    assert module is not None
    assert [sources.position(op).line for op in module.ops] == [50_001, 50_002, 50_003]


@pytest.mark.parametrize(
    ("text", "at", "message"),
    [
        ("", "1:1", "expected an operation"),
        ("rpeg.checkpoint }", "1:17", "expected an operation"),
        ('"rpeg.yield"(%x, %y) : (i1, i1) -> ()', "1:14", "%x is never defined"),
        ("rpeg.yield %x", "1:12", "%x is not defined above this use"),
        (
            "rpeg.batch",
            "1:11",
            "rpeg.batch needs prompts data or demos data or pairs data as operand 1 (source)",
        ),
        ('"' + "a" * 200, "1:1", "the string does not end on its line"),
        ("rpeg.generat %x", "1:1", "`rpeg.generat` is not an operation; did you mean"),
        ('"rpeg.step"() ({^7(%x: i1): }) : () -> ()', "1:17", "the label of a block starts with"),
        ('"rpeg.yield"() {a = 1 : i16777216} : () -> ()', "1:25", "integer types have at most"),
        (f"rpeg.checkpoint {{a = si{'4' * 30}}}", "1:22", "integer types have at most"),
        ("func.func @f() {}", "1:1", "`func.func` is not an operation"),
    ],
)
def test_broken_texts(text: str, at: str, message: str) -> None:
    module, _, problems = parse_module(text, "f")
    assert module is None
    assert [str(d.at) for d in problems] == [at]
    assert problems[0].message.startswith(message)


def test_nesting_has_a_limit() -> None:
    _, _, problems = parse_module("builtin.module {" * 3000, "f")
    assert [d.message for d in problems] == ["the text is nested too deeply"]


def test_wrong_shapes_are_all_found() -> None:
    text = '"rpeg.plan"() ({}) : () -> ()\n"rpeg.batch"() : () -> ()\n'
    module, sources, _ = parse_module(text, "f")
    assert module is not None
    assert [(d.at.line, d.message) for d in diagnose(module, sources)] == [
        (1, "rpeg.plan: region 'body' at position 0 expected a single block, but got 0 blocks"),
        (1, "rpeg.plan: `sym_name` is missing"),
        (1, "rpeg.plan: `cluster` is missing"),
        (1, "rpeg.plan belongs inside rpeg.pipeline"),
        (2, "rpeg.batch: expected 1 operand, but got 0"),
        (2, "rpeg.batch belongs inside rpeg.step"),
    ]


def test_the_text_tests_have_every_operation() -> None:
    shown = "".join(path.read_text(encoding="utf-8") for path in DIALECT.iterdir())
    seen = set(re.findall(r"\brpeg\.[a-z_.]+", shown))
    assert {op.name for op in OPERATIONS} - seen == {"rpeg.poison"}
