"""Rules of `explain`, and recovery: where blame is put, and that a mistake costs one message."""

from __future__ import annotations

import pytest

from rpeg.frontend.parse import parse
from rpeg.frontend.recovery import REGIONS
from rpeg.ir.vocabulary.tables import operations

PIPELINE = """\
rpeg 0.1
pipeline p {
  data d = prompts("x")
  step i < 5 {
    q = batch(d, size=8)
    every(steps=2) {
      checkpoint()
    }
  }
  expect q = ratio(mean=0.5)
  plan a on "c" {
    pool all = nodes(0..3)
    q on all
  }
}
"""

RESERVED = "`pool` is a reserved word and can't be a name; write for example `pool_`"

KIND = "a declaration begins with its kind"
BRACKETS = "operands and settings stand in brackets: write"
BRACES = "a block stands in braces: end this line with `{`"
OPEN = "expected `,` or `)` at the end of the line: the `(` of"
GOES_ON = "a line continues only after `(`, `[` or `,`"
EXPONENT = "a number ends with its exponent, and nothing behind it: 3e-4"
DOTS = "a name has no dots; text is written in double quotes"
ORDER = "`step`: the order is declarations, step, expect, plan"

BREAKS = [
    (
        "size=8)",
        "size=8",
        [
            "5:24: expected `,` or `)` at the end of the line: the `(` of column 14 "
            "is open; a line continues only after `(`, `[` or `,`"
        ],
    ),
    ("batch(d, size=8)", "f(a(d), size=[8)", ["5:24: expected `,`, `]` or `..`, found `)`"]),
    (
        "batch(d, size=8)",
        "f(a(d), size=8",
        [
            "5:23: expected `,` or `)` at the end of the line: the "
            "`(` of column 10 is open; a line continues only after `(`, `[` or `,`"
        ],
    ),
    (
        "batch(d, size=8)",
        "batch(\n  d, size=8",
        [
            "6:12: expected `,` or `)` at the end of the line: "
            "the `(` of 5:14 is open; a line continues only after `(`, `[` or `,`"
        ],
    ),
    ("    q = batch(d, size=8)", "    q = batch(d,", ["6:20: expected `,` or `)`, found `{`"]),
    ("      checkpoint()\n", "      checkpoint(\n", ["7:17: this `(` is not closed before line 8"]),
    ("q = batch(d", "q = = batch(d", ["5:9: a setting is written name=value with one `=`"]),
    ("q = batch(d", "pool = batch(d", [f"5:5: {RESERVED}"]),
    ("q = batch", "q = ", ["5:9: expected a name, found `(`"]),
    ("q = batch(d,", "q = batch(d", ["5:16: expected `,` before `size`"]),
    ("size=8)", "size=)", ["5:23: expected a value, found `)`"]),
    (
        "size=8)",
        "size={a: 8})",
        [
            "5:23: there are no dictionaries: a group of settings is a call, for "
            "example adamw(lr=1e-6)"
        ],
    ),
    ("size=8)", "size=8) q", ["5:26: one statement per line: put `q` on a line of its own"]),
    ("i < 5 {", "i {", ["4:10: a step says how many times it runs: step i < 500 {"]),
    ("i < 5 {", "i < 5", ["4:13: expected `{`, found the end of the line"]),
    ("rpeg 0.1\n", "", ["1:1: a file begins with the line `rpeg 0.1`"]),
    ("rpeg 0.1\npipeline", "pipelin", ["1:1: a file begins with the line `rpeg 0.1`"]),
    ("rpeg 0.1", "rpeg 1", ["1:1: a file begins with the line `rpeg 0.1`"]),
    (
        "expect q =",
        "model m =",
        ["10:3: `model` comes before `step`: the order is declarations, step, expect, plan"],
    ),
    ("data d =", "dat d =", ["3:3: `dat` begins no line; did you mean `data`?"]),
    ("step i", "Step i", ["4:3: `Step` begins no line; did you mean `step`?"]),
    ("pool all", "pol all", ["12:5: `pol` begins no line; did you mean `pool`?"]),
    ("data d", "d", ["3:3: a declaration begins with its kind: data d = prompts..."]),
    ("data d = prompts", "d = 8\n  data d = prompts", [f"3:3: {KIND}: param d = 8..."]),
    ("every(steps=2)", "every steps=2", [f"6:10: {BRACKETS} every(...)"]),
    ("batch(d, size=8)", "batch d", [f"5:14: {BRACKETS} batch(...)"]),
    ("every(steps=2) {", "every(steps=2):", [f"6:19: {BRACES}"]),
    ("i < 5 {", "i < 5:", [f"4:13: {BRACES}"]),
    (
        "every(steps=2) {",
        "every(steps=2)\n    {",
        ["6:19: every has a region: end the line with `{`"],
    ),
    ("i < 5 {", "i < 5\n  {", ["4:13: expected `{`, found the end of the line"]),
    ("size=8)", "size=8\n    )", [f"5:24: {OPEN} column 14 is open; {GOES_ON}"]),
    ("d, size=8)", "\n      d\n      , size=8)", [f"6:8: {OPEN} 5:14 is open; {GOES_ON}"]),
    ("i < 5", "i <= 5", ["4:11: a step counts from 0 and ends below its number: step i < 500 {"]),
    ("step i < 5", "step 5", ["4:8: a step says how many times it runs: step i < 500 {"]),
    ("step i < 5", "step(i < 5)", ["4:7: a step says how many times it runs: step i < 500 {"]),
    ("q = batch", "(q) = batch", ["5:5: names of results have no brackets: write y, lp = ..."]),
    ("q = batch", "q r = batch", ["5:6: expected `,` before `r`"]),
    ("q = batch", "q-1 = batch", ["5:6: a name has the letters a to z, digits and `_`"]),
    ("q = batch", "é = batch", ["5:5: a name has the letters a to z, digits and `_`"]),
    ("q = batch", "q[i+1] = batch", ["5:6: a version is written with @: q@i+1"]),
    ("q = batch", "q@(i+1) = batch", ["5:7: a version has no brackets: write @i+1"]),
    ("batch(d,", "batch(d@i-1..i,", ["5:16: a window of versions has brackets: @[i-1..i]"]),
    ("size=8", "size 8", ["5:22: expected `=` or `,` before `8`"]),
    ("size=8", "size=8+1", ["5:24: there is no arithmetic: a range is written a..b"]),
    ("size=8", "size=3e-4x", [f"5:23: {EXPONENT}"]),
    ("= batch(d, size=8)", "= 8", ["5:9: expected a call, name(...), found `8`"]),
    ('prompts("x")', '"x"', ['3:12: expected a call, name(...), found `"x"`']),
    ('prompts("x")', "prompts(x.jsonl)", [f"3:21: {DOTS}"]),
    (
        "    q on all\n",
        "    q on all\n    pool b = nodes(0..3)\n",
        ["14:5: pools come before the lines of the stages"],
    ),
    (
        "    q on all\n",
        "    q on all,\n    r on all\n",
        ["13:13: a line continues after `,`, and the next line is another stage: remove it"],
    ),
    ("q = batch", 'data e = prompts("y")\n    q = batch', [f"5:5: `data` comes before {ORDER}"]),
    ('"c"', '"c', ["11:13: the string is not closed on its line"]),
    ('prompts("x")', 'prompts("x)', ["3:20: the string is not closed on its line"]),
    ('"x"', "'x'", ['3:20: text is written in double quotes: "..."']),
    ("0..3", "0.3.3", ["12:25: a range is written a..b, a number 0.5"]),
    ("0.5", "50%", ["10:27: write a share as a number, 0.9"]),
    ("size=8", "size=8!", ["5:24: the character '!' has no meaning here"]),
    ("every(steps=2) {", "every(steps=2)", ["6:19: every has a region: end the line with `{`"]),
    (
        "  }\n  expect",
        "  expect",
        ["4:3: the block that starts here (`step`) is not closed before line 9: add `}`"],
    ),
    (
        "    }\n  }\n  expect",
        "    }\n  expect",
        ["4:3: the block that starts here (`step`) is not closed before line 9: add `}`"],
    ),
    (
        "    q on all\n  }\n",
        "    q on all\n",
        ["11:3: the block that starts here (`plan`) is never closed: add `}`"],
    ),
    (
        "    q on all\n  }\n}\n",
        "",
        ["11:3: the block that starts here (`plan`) is never closed: add `}`"],
    ),
]


@pytest.mark.parametrize(("old", "new", "expected"), BREAKS)
def test_break(old: str, new: str, expected: list[str]) -> None:
    assert old in PIPELINE
    _, diagnostics = parse(PIPELINE.replace(old, new, 1), "f")
    assert [f"{d.at}: {d.message}" for d in diagnostics] == expected


def test_an_early_end_is_told_once() -> None:
    assert [d.message for d in parse("rpeg 0.1;", "f")[1]] == [
        "a statement ends with its line: remove the `;`"
    ]
    assert [d.message for d in parse("# nothing", "f")[1]] == [
        "a file begins with the line `rpeg 0.1`"
    ]


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("# RPEG\n\nA compiler.\nIt has `passes`, [and more].\n\n    rpeg 0.1\n", "3:1"),
        ("[project]\nname = 'x'\nversion = 1.0\n", "1:1"),
        ("import torch\n\ndef step(i):\n    return {i: 0}\n", "1:1"),
        ('{\n  "model_type": "qwen2"\n}\n', "1:1"),
        ("builtin.module {\n  rpeg.pipeline @p {\n  }\n}\n", "1:1"),
        ("???\n", "1:1"),
    ],
    ids=["markdown", "toml", "python", "json", "mlir", "nothing"],
)
def test_another_language_is_told_once(text: str, at: str) -> None:
    found = [f"{d.at}: {d.message}" for d in parse(text, "f")[1]]
    assert found == [f"{at}: a file begins with the line `rpeg 0.1`"]


def test_operations_with_regions_are_those_of_the_dialect() -> None:
    assert {s.name for s in operations().values() if s.region} == REGIONS
