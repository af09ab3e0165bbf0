"""Texts to trees: positions, layouts of one program, and texts that are hardly texts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpeg.frontend import ast
from rpeg.frontend.parse import parse
from rpeg.ir.text.diagnostics import Position

SMALL = """\
rpeg 0.1
pipeline p {
  param n = 8
  model actor = policy("hf:x", optim=adamw(lr=1e-6))
  step i < $n {
    y, lp = generate(
      actor@[i-2..i], q, stop=["a", "b"],
    )
    every(steps=20) {
      actor@i+1 = update(actor@i, agg=token_mean)
    }
  }
  expect y = lognormal(mean=30ms)
  plan a on "alps" {
    pool all = nodes(0..3)
    y on all, par(dp=2)
  }
}
"""


def tree(text: str) -> ast.File:
    file, diagnostics = parse(text, "f.rpeg")
    assert diagnostics == []
    assert file is not None
    return file


def messages(text: str) -> list[str]:
    file, diagnostics = parse(text, "f.rpeg")
    assert file is None
    return [str(d) for d in diagnostics]


def test_content() -> None:
    (pipeline,) = tree(SMALL).pipelines
    i = ast.Index("i")
    older = ast.Index("i", "-", ast.Literal("int", "2"))
    generate, every = pipeline.step.body
    assert generate.targets == (ast.Ref("y"), ast.Ref("lp"))
    assert [a.value for a in generate.call.things] == [
        ast.Ref("actor", ast.Window(older, i)),
        ast.Ref("q"),
    ]
    (stop,) = generate.call.settings
    assert stop == ast.Arg(
        "stop", ast.ListOf((ast.Literal("str", '"a"'), ast.Literal("str", '"b"')))
    )
    assert every.body is not None
    assert str(every.body[0].targets[0]) == "actor@i+1"
    assert pipeline.params == (ast.Param("n", ast.Literal("int", "8")),)
    assert pipeline.plans[0].cluster == "alps"


def test_positions() -> None:
    (pipeline,) = tree(SMALL).pipelines
    generate, every = pipeline.step.body
    window, _, stop = generate.call.args
    (plan,) = pipeline.plans
    (place,) = plan.places
    assert [
        (node.at.line, node.at.column)
        for node in (pipeline, pipeline.params[0], pipeline.params[0].value, pipeline.step.count)
    ] == [(2, 10), (3, 9), (3, 13), (5, 12)]
    assert isinstance(window.value, ast.Ref)
    assert isinstance(window.value.version, ast.Window)
    assert window.value.version.low.at == Position(7, 14)
    assert (generate.call.at, generate.call.end) == (Position(6, 13), Position(8, 6))
    assert (stop.at, stop.value.at) == (Position(7, 26), Position(7, 31))
    assert (every.call.end, every.end) == (Position(9, 20), Position(11, 5))
    assert (plan.at, plan.cluster_at, plan.end) == (
        Position(14, 8),
        Position(14, 13),
        Position(17, 3),
    )
    assert (place.at, place.pool_at) == (Position(16, 5), Position(16, 10))


@pytest.mark.parametrize(
    "text",
    [
        SMALL.replace("\n", "\r\n"),
        SMALL.rstrip("\n"),
        SMALL.replace("  ", "\t"),
        SMALL.replace("\n", "  # why\n\n"),
        "# first\n\n" + SMALL,
        SMALL.replace("par(dp=2)", "\n\n # where \n  par(dp=2,)"),
    ],
    ids=["crlf", "no last newline", "tabs", "comments", "late start", "continued"],
)
def test_layouts_of_one_program(text: str) -> None:
    assert tree(text) == tree(SMALL)


def test_columns_are_the_same_with_both_line_ends() -> None:
    broken = SMALL.replace("param n = 8", "param n = = 8")
    assert messages(broken.replace("\n", "\r\n")) == messages(broken)


def test_all_syntax_errors_in_one_run() -> None:
    text = (
        SMALL.replace("n = 8", "n 8").replace("policy(", "policy[").replace("par(dp=2)", "par dp=2")
    )
    assert messages(text) == [
        "f.rpeg:3:11: error: expected `=`, found `8`",
        "f.rpeg:4:23: error: expected `(`, found `[`",
        "f.rpeg:16:19: error: expected `(`, found `dp`",
    ]


def test_byte_order_mark() -> None:
    assert messages("\ufeff" + SMALL) == [
        "f.rpeg:1:1: error: remove the byte-order mark: save the file as plain UTF-8"
    ]


def test_other_version() -> None:
    assert messages(SMALL.replace("0.1", "0.2")) == [
        "f.rpeg:1:6: error: rpeg 0.2 is not known here: write `rpeg 0.1`"
    ]
    broken = SMALL.replace("0.1", "0.2").replace("n = 8", "n 8")
    assert [m.split(": ")[0] for m in messages(broken)] == ["f.rpeg:1:6", "f.rpeg:3:11"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("8k", "13: error: `8k` is ambiguous: write 8192 or 8000"),
        ("1.5K", "13: error: `1.5K` is ambiguous: write 1536 or 1500"),
        (
            "5m",
            "13: error: `m` is not a unit: times are us ms s min h, sizes KiB MiB GiB, "
            "everything else is a plain number",
        ),
        ("9" * 5000, "13: error: a whole number has at most 64 bits"),
        (str(2**63), "13: error: a whole number has at most 64 bits"),
        ("9" * 5000 + "h", "13: error: a quantity has at most 64 bits"),
        (f"{2**40}GiB", "13: error: a quantity has at most 64 bits"),
        ("1e999", "13: error: the number is too large"),
        (r'"a\q"', r"15: error: `\q` has no meaning in a text: known are \" \\ \n \t \uXXXX"),
        (r'"\ud800"', r"14: error: `\ud800` is not a character: write the character itself"),
    ],
    ids=lambda text: text[:12],
)
def test_bad_literals(value: str, message: str) -> None:
    assert messages(SMALL.replace("n = 8", f"n = {value}")) == [f"f.rpeg:3:{message}"]


def test_nesting_has_a_limit() -> None:
    deep = SMALL.replace("n = 8", "n = 8\n  data d = f(a=" + "[" * 5000 + "]" * 5000 + ")")
    assert messages(deep) == ["f.rpeg:4:30: error: brackets stand at most 16 deep in each other"]


def test_messages_have_a_limit() -> None:
    assert len(messages(SMALL.replace("n = 8", "n = 8\n" + "?\n" * 40 + "x y\n" * 1000))) <= 200


@pytest.mark.parametrize(
    "text", ["", "\n", "# only\n", "\0", "\r", '"', "'", "{", "}\n" * 9, ";" * 999]
)
def test_what_is_no_program(text: str) -> None:
    assert messages(text)


@given(st.text(max_size=60))
def test_any_text_gets_messages(text: str) -> None:
    assert messages(text)


@given(st.text(alphabet=" \n\t(){}[],=@.$\"'\\x1#<-", max_size=40), st.integers(0, len(SMALL)))
def test_any_text_inside_a_program(text: str, place: int) -> None:
    file, diagnostics = parse(SMALL[:place] + text + SMALL[place:], "f")
    assert (file is None) == bool(diagnostics)


def test_examples_parse() -> None:
    examples = sorted((Path(__file__).parents[3] / "examples").glob("*.rpeg"))
    assert len(examples) >= 12
    for path in examples:
        tree(path.read_text(encoding="utf-8"))
