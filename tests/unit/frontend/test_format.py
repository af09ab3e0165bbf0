"""The formatter: canonical texts stay as they are, others come to one form and lose no comment."""

from __future__ import annotations

from pathlib import Path

import pytest

from rpeg.frontend.format import format_source
from rpeg.frontend.parse import parse
from rpeg.frontend.render import render
from rpeg.ir.text.diagnostics import DiagnosticsError

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.rpeg"))

UNTIDY = """\
# top
rpeg   0.1  # header
# about
pipeline x  {  # open

  # first
  param n=8 # n


   model actor = policy("a", # the source
     optim = adamw(lr=1e-6,

       # inner
       warmup=20),
     # last
     )  # end of model
  # about the step
  step i<$n{
    y,lp = generate(actor@[ i-2 .. i ],q, stop = ["a" ,"b",])
    a = f( # head
    )
    every( steps=3) { # hi

       checkpoint() # c
       # tail

    } # closed
    # before the end
  }
  expect y = ratio(mean=0.5)
  plan p on "x" {
    v on all, par(tp=2), # v
      mb(tokens=1) # last
    y on all, # stage
      # above mb
      mb(tokens=1)
    z on all, par(tp=2),
      mb(tokens=1) # end
  } # plan end
}
# rest

# of the file"""

TIDY = """\
# top
rpeg 0.1  # header

# about
pipeline x {  # open
  # first
  param n = 8  # n

  model actor = policy(
    "a",  # the source
    optim=adamw(
      lr=1e-6,
      # inner
      warmup=20,
    ),
    # last
  )  # end of model

  # about the step
  step i < $n {
    y, lp = generate(actor@[i-2..i], q, stop=["a", "b"])
    a = f(  # head
    )
    every(steps=3) {  # hi
      checkpoint()  # c
      # tail
    }  # closed
    # before the end
  }

  expect y = ratio(mean=0.5)

  plan p on "x" {
    v on all,
      par(tp=2),  # v
      mb(tokens=1)  # last
    y on all,  # stage
      # above mb
      mb(tokens=1)
    z on all, par(tp=2), mb(tokens=1)  # end
  }  # plan end
}
# rest

# of the file
"""


def in_step(statement: str) -> str:
    """The lines of a statement as the formatter writes them inside a step."""
    text = f"rpeg 0.1\npipeline p {{\nstep i < 1 {{\n{statement}\n}}\n}}\n"
    lines = format_source(text, "f").split("\n")
    return "\n".join(lines[4:-3])


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_canonical(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert format_source(text, path.name) == text


def test_untidy_text() -> None:
    assert format_source(UNTIDY, "f") == TIDY
    assert format_source(UNTIDY.replace("\n", "\r\n"), "f") == TIDY
    assert format_source(TIDY, "f") == TIDY


def test_render_leaves_out_what_the_tree_does() -> None:
    file, _ = parse(UNTIDY, "f")
    assert file is not None
    text = render(file)
    assert "#" not in text
    assert parse(text, "f")[0] == file
    assert text.startswith("rpeg 0.1\n\npipeline x {\n  param n = 8\n  model actor")


@pytest.mark.parametrize("width", [100, 101])
def test_a_hundred_columns(width: int) -> None:
    name = "x" * (width - len("    (a, b=1)"))
    flat = f"    {name}(a, b=1)"
    assert len(flat) == width
    broken = f"    {name}(\n      a, b=1,\n    )"
    assert in_step(flat) == (flat if width == 100 else broken)


def test_one_argument_a_line_where_they_need_more_than_one() -> None:
    first, second = "a" * 60, "b" * 60
    lines = ["    f(", f"      {first},", f"      {second},", "    )"]
    assert in_step(f"f({first}, {second})") == "\n".join(lines)


def test_long_values_break_inside() -> None:
    first, second = "a" * 60, "b" * 60
    lines = [
        "    f(",
        "      x=[",
        f"        {first},",
        f"        {second},",
        "      ],",
        "    )",
    ]
    assert in_step(f"f(x=[{first}, {second}])") == "\n".join(lines)


def test_broken_text_is_refused() -> None:
    with pytest.raises(DiagnosticsError, match=r"^f:1:1: error: a file begins with"):
        format_source("pipeline", "f")
