"""The mistakes that parse: names, kinds, versions, staleness, plans."""

from __future__ import annotations

import pytest

from rpeg.frontend import check
from tests.unit.frontend.mistakes import ASYNC, ROOT, SYNTAX, expected, mistakes, shown

EXPECTED = expected()


@pytest.mark.parametrize(
    ("title", "example", "text"),
    [pytest.param(*case, id=case[0]) for case in mistakes()[SYNTAX:]],
)
def test_meaning(title: str, example: str, text: str) -> None:
    assert shown(check(text, f"{example}.rpeg"), text) == EXPECTED[title]


@pytest.mark.parametrize(
    ("old", "twice", "said"),
    [
        ("mb(tokens=16384), resid", "mb(tokens=16384), mb(tokens=1), resid", "mb is given twice"),
        (
            "publish(all, mode=reshard)",
            "publish(all, mode=reshard), publish(all, mode=relay)",
            "publish(all) is given twice",
        ),
    ],
)
def test_a_clause_given_twice(old: str, twice: str, said: str) -> None:
    text = (ROOT / "examples" / f"{ASYNC}.rpeg").read_text(encoding="utf-8")
    assert old in text
    text = text.replace(old, twice, 1)
    second = text.index(twice) + twice.index("), ") + 3
    errors = [d for d in check(text, f"{ASYNC}.rpeg") if d.severity == "error"]
    assert [d.message for d in errors] == [f"{said}: keep one"]
    assert errors[0].at.column == second - text.rindex("\n", 0, second)
