"""Rules of the IR say the same of MLIR as of text: `mistakes.mlir` has the golden messages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rpeg.tools.opt.expected import expectations
from tests.unit.frontend.mistakes import expected
from tests.unit.tools.opt import opt

FILE = Path(__file__).parents[2] / "filecheck" / "invalid" / "mistakes.mlir"
TEXT = FILE.read_text(encoding="utf-8")
CHUNKS = {
    int(match[1]): (match[2], match[3])
    for match in re.finditer(r"^// (\d+) (.*)\n((?s:.*?))(?=^// -----|\Z)", TEXT, re.MULTILINE)
}
RULES = [20, 26, *range(32, 52)]
"""Numbers of the mistakes that break rules of the IR; the others break those of names or syntax."""


def without_places(message: str) -> str:
    """Places differ between a text and its MLIR."""
    return re.sub(r"\b\d+:\d+\b|\bline \d+", "PLACE", message)


def test_every_rule_has_a_chunk() -> None:
    assert sorted(CHUNKS) == RULES


@pytest.mark.parametrize("number", RULES)
def test_messages(number: int) -> None:
    title, chunk = CHUNKS[number]
    golden = re.findall(r": error: (.*)", expected()[title])
    wanted = golden[1:] if number == 26 else golden  # the first of 26 is about names
    found = sorted(expectations(chunk), key=lambda e: e.at)
    assert [without_places(e.text) for e in found] == [without_places(m) for m in wanted]


def test_they_are_given() -> None:
    run = opt(str(FILE), "--split-input-file", "--verify-diagnostics")
    assert (run.code, run.err) == (0, "")
