"""Generated pages of the documentation are what the code says."""

import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "docs" / "generate.py"


def test_pages_are_up_to_date(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    code = runpy.run_path(str(SCRIPT))["main"](check=True)
    assert (code, capsys.readouterr().err) == (0, "")
