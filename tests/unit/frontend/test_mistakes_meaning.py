"""The mistakes that parse: names, kinds, versions, staleness, plans."""

from __future__ import annotations

import pytest

from rpeg.frontend import check
from tests.unit.frontend.mistakes import SYNTAX, expected, mistakes, shown

EXPECTED = expected()


@pytest.mark.parametrize(
    ("title", "example", "text"),
    [pytest.param(*case, id=case[0]) for case in mistakes()[SYNTAX:]],
)
def test_meaning(title: str, example: str, text: str) -> None:
    assert shown(check(text, f"{example}.rpeg"), text) == EXPECTED[title]
