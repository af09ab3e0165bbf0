"""The table of rules: every code has a page, and every page's example breaks its rule alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from rpeg.frontend import load
from rpeg.ir.levels import LEVELS, level_violations
from rpeg.ir.rules.explain import PAGES, Rule, explained, rules
from rpeg.ir.rules.verify import diagnose
from rpeg.ir.text.diagnostics import Diagnostic, has_errors
from rpeg.ir.text.parse import parse_module

IR = Path(PAGES).parents[1]
RULES = rules()
SEVERITY = {"unused-declaration": "warning", "rounded-copy": "note", "open-stages": "warning"}
"""Of those that are no errors."""


def messages(text: str, rule: Rule) -> list[Diagnostic]:
    if rule.language == "rpeg":
        return list(load(text, "example.rpeg").diagnostics)
    module, sources, problems = parse_module(text, "example.mlir")
    found = [*problems, *(diagnose(module, sources) if module is not None else ())]
    for level in (name for name in LEVELS if name == rule.at):
        assert module is not None
        found += [sources.violation(op, v) for op, v in level_violations(module, level)]
    return found


def test_every_code_has_a_page_and_every_page_a_code() -> None:
    assert sorted(path.stem for path in PAGES.glob("*.md")) == sorted(RULES)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_the_example_breaks_this_rule_alone(rule: Rule) -> None:
    found = messages(rule.broken, rule)
    assert {d.rule for d in found} == {rule.code}, found
    assert {d.severity for d in found} == {SEVERITY.get(rule.code, "error")}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_the_mended_example_verifies(rule: Rule) -> None:
    found = messages(rule.mended, rule)
    assert not has_errors(found), found
    assert rule.code not in {d.rule for d in found}


def constructed() -> Iterator[tuple[str, ast.expr]]:
    """(file, first argument) of each violation that the verifier makes."""
    for path in sorted(IR.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Violation":
                yield path.name, node.args[0]


def test_the_verifier_speaks_of_every_rule() -> None:
    """mypy holds each violation to the codes; this holds each code to a violation."""
    said = {n.value for _, code in constructed() for n in ast.walk(code) if _is_text(n)}
    defaults = {"stale-read", "old-from-lagged-weights"}  # of `LAGGED`, by the class of the reader
    assert said | defaults == set(RULES)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def test_explained() -> None:
    text = explained("yielded-twice")
    assert text.startswith("yielded-twice (L0)\n\nA state gets one next version per step.\n")
    assert "\n+    actor@i+1 = update(actor@i, ce, small, agg=token_mean)\n" in text
