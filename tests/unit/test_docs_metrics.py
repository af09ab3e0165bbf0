"""docs/run-folder.md names what is in metrics.jsonl; other tests hold it to what runs write."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.documented import documented, unexplained

RUNTIME = Path(__file__).parents[2] / "rpeg" / "runtime"
SOURCE = "\n".join(path.read_text(encoding="utf-8") for path in sorted(RUNTIME.rglob("*.py")))


def test_names_that_no_run_explains_are_found() -> None:
    step = {"step": 1, "reward/r": 0.5, "time/update_actor/forward": 1.0, "critic/loss": 0.1}
    assert unexplained([step]) == set()
    assert unexplained([{"loss/other": 1.0, "critic/other": 1.0}]) == {"loss/other", "critic/other"}


@pytest.mark.parametrize("name", documented())
def test_no_name_outlives_what_writes_it(name: str) -> None:
    """Each part of a name that is not a placeholder stands in a text of the runtime."""
    for part in re.sub(r"<\w+>", "", name).split("/"):
        assert not part or re.search(rf"[\"/{{}}]{part}[\"/_]", SOURCE), part
