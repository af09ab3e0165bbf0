"""`--set name=value`."""

from __future__ import annotations

import pytest

from rpeg.frontend import ast
from rpeg.frontend.overrides import SOURCE, apply_overrides, dump_params, parse_overrides
from rpeg.frontend.parse import parse
from rpeg.ir.text.diagnostics import DiagnosticsError, Position, render

TEXT = """\
rpeg 0.1
pipeline p {
  param steps = 8
  param lr = 1e-6
  param source = "hf:x"
  step i < $steps {
    f(lr=$lr, source=$source)
  }
}
"""
LITERAL = 'expected name=value with a literal such as 8, 3e-4, true or "text"'


@pytest.fixture
def pipeline() -> ast.Pipeline:
    file, _ = parse(TEXT, "p.rpeg")
    assert file is not None
    return file.pipelines[0]


def test_values_replace_those_of_the_text(pipeline: ast.Pipeline) -> None:
    overrides = parse_overrides(["lr=1", 'source="run:a/b"', "steps = 32"])
    applied = apply_overrides(pipeline, overrides, "p.rpeg")
    assert dump_params(applied) == 'steps = 32\nlr = 1\nsource = "run:a/b"\n'
    assert [p.value.at for p in applied.params] == [p.value.at for p in pipeline.params]
    assert dump_params(pipeline) == 'steps = 8\nlr = 1e-6\nsource = "hf:x"\n'


def test_a_dump_can_be_given_back(pipeline: ast.Pipeline) -> None:
    overrides = parse_overrides(dump_params(pipeline).splitlines())
    assert apply_overrides(pipeline, overrides, "p.rpeg") == pipeline


@pytest.mark.parametrize(
    ("setting", "column", "message"),
    [
        ("steps", 6, LITERAL),
        ("steps=", 7, LITERAL),
        ("=3", 1, LITERAL),
        ("", 1, LITERAL),
        ("source=hf:x", 10, LITERAL),
        ("steps=1 2", 9, LITERAL),
        ("steps=1\nparam n=2", 1, LITERAL),
        ("data=3", 1, LITERAL),
        ("steps=8k", 7, "`8k` is ambiguous: write 8192 or 8000"),
        (r'source="\q"', 9, r"`\q` has no meaning in a text"),
        ("steps=$n", 7, "a param holds a literal, not another param"),
        ("lr=3e-4", 1, "`lr` is set twice: lr=2.0 and lr=3e-4; keep one"),
    ],
)
def test_what_is_no_setting(setting: str, column: int, message: str) -> None:
    with pytest.raises(DiagnosticsError) as caught:
        parse_overrides(["lr=2.0", setting])
    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.file, diagnostic.at) == (SOURCE, Position(2, column))
    assert diagnostic.message.startswith(message)


def test_messages_show_the_settings() -> None:
    settings = ["lr=2.0", "steps=8k"]
    with pytest.raises(DiagnosticsError) as caught:
        parse_overrides(settings)
    assert render(caught.value.diagnostics, {SOURCE: "\n".join(settings)}) == (
        "--set:2:7: error: `8k` is ambiguous: write 8192 or 8000\n    steps=8k\n          ^\n"
    )


def test_settings_that_do_not_fit_the_pipeline(pipeline: ast.Pipeline) -> None:
    overrides = parse_overrides(["stepz=1", "other=1", "steps=1.5", "source=true"])
    with pytest.raises(DiagnosticsError) as caught:
        apply_overrides(pipeline, overrides, "p.rpeg")
    assert [str(d) for d in caught.value.diagnostics] == [
        "p.rpeg:2:10: error: --set stepz=1: `p` has no param `stepz`; did you mean `steps`?",
        "p.rpeg:2:10: error: --set other=1: `p` has no param `other`; it has: steps, lr, source",
        "p.rpeg:3:17: error: --set steps=1.5: `steps` takes a whole number, such as 8 in the file",
        "p.rpeg:5:18: error: --set source=true: "
        '`source` takes text in "...", such as "hf:x" in the file',
    ]
