"""xDSL's own driver reads, transforms and writes our files, through the entry point."""

import importlib.metadata
import tomllib
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest
from xdsl.xdsl_opt_main import xDSLOptMain

ROOT = Path(__file__).parents[2]
GROUP = "xdsl.universe"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry points of xDSL and of this checkout, whatever is installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    ours = project["entry-points"][GROUP]
    found = {"xdsl": "xdsl.universe:XDSL_UNIVERSE", **ours}
    points = EntryPoints(EntryPoint(name, value, GROUP) for name, value in found.items())
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: points)


@pytest.mark.usefixtures("installed")
def test_xdsl_opt(capsys: pytest.CaptureFixture[str]) -> None:
    source = str(ROOT / "examples" / "rloo.rpeg")
    xDSLOptMain(args=[source, "-p", "rpeg-canonicalize,cse", "-t", "rpeg"]).run()
    assert "adv = group_advantage(rs, baseline=leave_one_out" in capsys.readouterr().out
