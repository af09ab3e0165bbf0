"""docs/algorithms.md: its programs are of the language, its references are compared by tests."""

import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rpeg.frontend import load

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
ABOUT = json.loads((ROOT / "tests/golden/references/about.json").read_text(encoding="utf-8"))
CODE = re.compile(r"`([^`]+)`")
REFERENCE = re.compile(r"`([\w.]+)` \[([\w, ]+)\]")

# Where the names of the page's programs come from.
GIVEN = {
    "lp_old": "lp_old = logprob(actor@i, y)",
    "lp_ref": "lp_ref = logprob(ref, y)",
    "lp_teacher": "lp_teacher = logprob(teacher, y)",
    "v": "v = values(critic@i, y)",
    "b": "b = batch(rows, size=4)",
    "r0": "r0 = score(correct, y0)",
    "p": "p = batch(preferences, size=4)",
    "lp_p": "lp_p = logprob(ref, p)",
    "r": "r = score(correct, y)",
}
# By name of a loss that trains another model than the actor: that model.
OTHERS = {
    "vl": ("critic", 'model critic = value("tiny", optim=adamw(lr=1e-3))'),
    "rl": ("rm", 'model rm = reward("tiny", optim=adamw(lr=1e-3))'),
}
ACTOR = 'policy("tiny", optim=adamw(lr=1e-3))'
FROZEN = 'policy("tiny")'
PROGRAM = """rpeg 0.1
pipeline p {{
  model actor = {actor}
  {more}
  model ref = policy(actor@0)
  model teacher = policy("other")
  data train = prompts("train.jsonl")
  data rows = demos("rows.jsonl")
  data preferences = pairs("preferences.jsonl")
  verifier correct = outcome("rule:exact_match")
  step i < 10 {{
    {lines}
  }}
}}
"""


def table(heading: str) -> Iterator[list[str]]:
    """The cells of the first table below a heading."""
    below = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = re.findall(r"(?:^\|.*\n)+", below, re.M)[0].splitlines()
    for line in lines[2:]:
        yield [cell.strip() for cell in line.strip("|").split("|")]


ALGORITHMS = {row[0]: row for row in table("In the language")}
RUNTIME_ONLY = {row[0]: row for row in table("In the runtime only")}


def program(advantage: str, loss: str, aggregation: str) -> str:
    """A whole pipeline of a row's lines."""
    lines = CODE.findall(advantage) + CODE.findall(loss)
    words = set(re.findall(r"\w+", " ".join(line.split("=", 1)[1] for line in lines)))
    start = [made for name, made in GIVEN.items() if name in words]
    if "y" in words:
        greedy = ["y0, lp0 = generate(actor@i, q, max_tokens=8, temperature=0.0)"]
        sampled = ["q = batch(train, size=4)", "y, lp = generate(actor@i, q, n=4, max_tokens=8)"]
        start = [*sampled, *(greedy if "r0" in words else []), *start]
    losses = [line.split(" = ")[0] for line in CODE.findall(loss)]
    agg = CODE.findall(aggregation)[0]
    others = {model: [x for x in losses if x == own] for own, (model, _) in OTHERS.items()}
    trained = {"actor": [x for x in losses if x not in OTHERS], **others}
    updates = [
        f"{model}@i+1 = update({model}@i, {', '.join(terms)}, {agg})"
        for model, terms in trained.items()
        if terms
    ]
    body = "\n    ".join([*start, *lines, *updates])
    more = "\n  ".join(made for own, (_, made) in OTHERS.items() if own in losses)
    return PROGRAM.format(actor=ACTOR if trained["actor"] else FROZEN, more=more, lines=body)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_row_is_a_program(name: str) -> None:
    _, advantage, loss, aggregation, *_ = ALGORITHMS[name]
    loaded = load(program(advantage, loss, aggregation), "page.rpeg")
    errors = [str(d) for d in loaded.diagnostics]
    assert loaded.module is not None, errors


def test_references_are_the_ones_that_are_compared() -> None:
    shown = [(f, case) for f, cases in REFERENCE.findall(PAGE) for case in cases.split(", ")]
    wrong = [(f, c) for f, c in shown if not ABOUT["cases"][c]["function"].endswith(f".{f}")]
    assert wrong == []
    assert {case for _, case in shown} == set(ABOUT["cases"])


def test_versions_are_the_ones_that_made_the_references() -> None:
    versions = ABOUT["versions"]
    assert f"verl {versions['verl']} and\nTRL {versions['trl']}" in PAGE


@pytest.mark.parametrize("name", RUNTIME_ONLY)
def test_functions_of_the_runtime_exist(name: str) -> None:
    module, function = CODE.findall(RUNTIME_ONLY[name][1])[0].split(".")
    assert callable(getattr(importlib.import_module(f"rpeg.runtime.{module}"), function))
