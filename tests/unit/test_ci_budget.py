"""docs/ci.md has a row for everything that continuous integration runs; figures may differ."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
JUNIT = """<testsuites><testsuite>
<testcase classname="tests.unit.ir.test_parse" name="a[x.y]" time="1.25" />
<testcase classname="tests.unit.ir.test_parse.TestGroup" name="b" time="0.5" />
<testcase classname="tests.filecheck.dialect.l0.rpeg" name="l0.rpeg" time="2.0" />
</testsuite></testsuites>"""


@pytest.fixture(scope="module")
def budget() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs" / "ci_budget.py"))


def test_nothing_is_missing(budget: dict[str, Any]) -> None:
    text = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    assert budget["missing"](text) == [], "run `bash .ci/run`, then `python docs/ci_budget.py`"


def test_missing_rows_are_found(budget: dict[str, Any]) -> None:
    text = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    for name in ("types", "tests/unit/ir", "tests/unit/test_wheel.py"):
        rows = (line for line in text.splitlines() if name not in line.replace("`", "").split())
        assert budget["missing"]("\n".join(rows)) == [name]


def test_figures_are_summed(budget: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "test.xml").write_text(JUNIT)
    suite = budget["read_suite"](tmp_path / "test.xml")
    assert suite.row("tests/unit/ir") == "| `tests/unit/ir` | 2 | 2 |"
    assert suite.row("tests/unit/ir/test_parse.py") == "| `tests/unit/ir/test_parse.py` | 2 | 2 |"
    assert suite.row("tests/filecheck/dialect") == "| `tests/filecheck/dialect` | 1 | 2 |"
    assert suite.row("tests/unit/none") == "| `tests/unit/none` | - | - |"


def test_parts_are_read(budget: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "parts.tsv").write_text("style\t1\ntest\t200\n")
    assert budget["read_parts"](tmp_path / "parts.tsv") == {"style": 1, "test": 200}
    assert budget["parts"]()["types"] == "mypy --strict rpeg"
    assert budget["limit"]() > 0
