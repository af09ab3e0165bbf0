"""Hypothesis strategies: syntax trees of any content, and layouts of a text."""

from __future__ import annotations

from hypothesis import strategies as st

from rpeg.frontend import ast
from rpeg.frontend.literals import LARGEST, UNITS, encode

Strategy = st.SearchStrategy

NAMES = st.sampled_from(
    [
        "i",
        "x",
        "_",
        "Ab_9",
        "modelled",
        "on_",
        "update",
        "a_name_so_long_that_lines_with_it_break_early",
    ]
)
DIGITS = st.sampled_from(["0", "7", "16_384", "300"])
SIGNED = st.builds(str.__add__, st.sampled_from(["", "-", "+"]), DIGITS)


def literal(kind: ast.LiteralKind, text: Strategy[str]) -> Strategy[ast.Literal]:
    return st.builds(ast.Literal, st.just(kind), text)


PARAM_NAMES = literal("param", NAMES.map("${}".format))
INTS = literal("int", SIGNED)
FLOATS = literal(
    "float",
    st.floats(allow_nan=False, allow_infinity=False)
    .map(repr)
    .filter(lambda t: "." in t or "e" in t),
)
COUNTS = literal("int", DIGITS) | PARAM_NAMES
LITERALS = (
    INTS
    | FLOATS
    | PARAM_NAMES
    | literal("bool", st.sampled_from(["true", "false"]))
    | literal("str", st.text(max_size=9).map(encode))
    | literal("quantity", st.builds(str.__add__, DIGITS, st.sampled_from(sorted(UNITS))))
)

INDICES = st.one_of(
    st.builds(ast.Index, offset=literal("int", DIGITS)),
    st.builds(ast.Index, NAMES),
    st.builds(ast.Index, NAMES, st.sampled_from(["+", "-"]), COUNTS),
)
REFS = st.builds(ast.Ref, NAMES, st.none() | INDICES | st.builds(ast.Window, INDICES, INDICES))
RANGES = st.builds(ast.Range, st.integers(0, LARGEST), st.integers(0, LARGEST))


def tuples(of: Strategy[ast.Node], least: int = 0, most: int = 2) -> Strategy[tuple[ast.Node, ...]]:
    return st.lists(of, min_size=least, max_size=most).map(tuple)


def calls(values: Strategy[ast.Value]) -> Strategy[ast.Call]:
    return st.builds(ast.Call, NAMES, tuples(st.builds(ast.Arg, st.none() | NAMES, values)))


VALUES: Strategy[ast.Value] = st.recursive(
    LITERALS | REFS | RANGES,
    lambda inner: st.builds(ast.ListOf, tuples(inner)) | calls(inner),
    max_leaves=4,
)
CALLS = calls(VALUES)

DECLARATIONS = st.one_of(
    st.builds(ast.Param, NAMES, LITERALS),
    st.builds(
        ast.Symbol,
        st.sampled_from(["model", "data", "verifier", "tool", "state"]),
        NAMES,
        CALLS,
    ),
    st.builds(ast.Allow, CALLS),
)
STATEMENTS: Strategy[ast.Statement] = st.recursive(
    st.builds(ast.Statement, tuples(REFS), CALLS),
    lambda inner: st.builds(ast.Statement, tuples(REFS), CALLS, tuples(inner, least=1)),
    max_leaves=2,
)
STEPS = st.builds(ast.Step, NAMES, COUNTS, tuples(STATEMENTS, least=1))
PLANS = st.builds(
    ast.Plan,
    NAMES,
    st.text(max_size=8),
    tuples(st.builds(ast.Pool, NAMES, CALLS)),
    tuples(st.builds(ast.Place, NAMES, NAMES, tuples(CALLS))),
)
PIPELINES = st.builds(
    ast.Pipeline,
    NAMES,
    tuples(DECLARATIONS),
    STEPS,
    tuples(st.builds(ast.Expect, NAMES, CALLS), most=2),
    tuples(PLANS, most=2),
)
FILES = st.builds(ast.File, st.just("0.1"), tuples(PIPELINES, least=1, most=2))

COMMENT = "# a comment"


@st.composite
def commented(draw: st.DrawFn, text: str) -> str:
    """The text with comments and blank lines between and behind its lines."""
    lines: list[str] = []
    for line in text.splitlines():
        lines += draw(st.lists(st.sampled_from(["", f"   {COMMENT}"]), max_size=2))
        lines.append(line + draw(st.sampled_from(["", "", f" {COMMENT}"])))
    return "\n".join(lines)
