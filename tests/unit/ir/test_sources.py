"""The form of sources, and the rules that the language knows."""

from __future__ import annotations

import pytest

from rpeg.frontend import check
from rpeg.ir.rules.uris import source_problem
from rpeg.ir.vocabulary.records import RULES
from tests.unit.passes.pipelines import grpo


@pytest.mark.parametrize(
    ("kind", "uri", "said"),
    [
        ("verifier", "rule:exact_macth", "did you mean `exact_match`?"),
        ("data", "rule:math", "data comes from a path, hf:NAME or gym:TASK, not from `rule:`"),
        ("model", "gym:countdown", "hf:NAME or run:PIPELINE/MODEL, not from `gym:`"),
        ("verifier", "hf:a/b", "a verifier comes from rule:NAME, gym:TASK or python:module"),
        ("verifier", "exact_match", "not from a path; did you mean `rule:exact_match`?"),
        ("verifier", "", "empty"),
        ("verifier", "python:rewards", "python:module:function"),
        ("verifier", "python:os:system:x", "python:module:function"),
        ("model", "run:warmup", "run:PIPELINE/MODEL"),
        ("model", "hf:", "`hf:` names nothing: write a Hugging Face repository behind the colon"),
        ("data", "gym: ", "`gym:` names nothing"),
        ("verifier", "py:x:y", "`py:` is not a known source"),
    ],
)
def test_refused(kind: str, uri: str, said: str) -> None:
    problem = source_problem(kind, uri)
    assert problem is not None and said in problem


@pytest.mark.parametrize(
    ("kind", "uri"),
    [
        ("verifier", "rule:math"),
        ("tool", "rule:calculator"),
        ("verifier", "python:pkg.rewards:length"),
        ("model", "run:warmup/actor"),
        ("data", "gym:countdown"),
        ("data", "a folder/data.jsonl"),
    ],
)
def test_taken(kind: str, uri: str) -> None:
    assert source_problem(kind, uri) is None


def test_the_runtime_has_the_rules_of_verifiers() -> None:
    from rpeg.runtime.verifiers.rules import find_rule

    for name in RULES["verifier"]:
        find_rule(name, soft=1, max_tokens=2)


@pytest.mark.parametrize(("source", "model", "told"), [("fp32", "bf16", 1), ("bf16", "bf16", 0)])
def test_initial_weights_that_are_rounded_are_told(source: str, model: str, told: int) -> None:
    text = grpo(("lr=1e-3), dtype=fp32", f"lr=1e-3), dtype={source}"))
    found = check(text.replace("actor@0, dtype=fp32", f"actor@0, dtype={model}"), "p.rpeg")
    notes = [d.message for d in found if d.severity == "note"]
    why = "`ref` rounds the weights of `actor`, which are fp32, to bf16: write dtype=fp32 to keep"
    assert notes == [f"{why} them"] * told
