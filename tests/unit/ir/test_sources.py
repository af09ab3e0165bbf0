"""The form of sources, and the rules that the language knows."""

from __future__ import annotations

import pytest

from rpeg.ir.ops.declare import source_problem
from rpeg.ir.records import RULES


@pytest.mark.parametrize(
    ("kind", "uri", "said"),
    [
        ("verifier", "rule:exact_macth", "did you mean `exact_match`?"),
        ("data", "rule:math", "a data has none"),
        ("verifier", "", "empty"),
        ("verifier", "python:rewards", "python:module:function"),
        ("verifier", "python:os:system:x", "python:module:function"),
        ("model", "run:warmup", "run:PIPELINE/MODEL"),
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
