"""The pass of docs/writing-a-pass.md works as the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from rpeg.passes.base import RpegPass
from tests.unit.passes.pipelines import grpo, names, parse, run

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "writing-a-pass.md"
(CODE,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), flags=re.M | re.S)
"""The page's only Python block."""


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> RpegPass:
    """It as a pass."""
    module = ModuleType("shown")
    monkeypatch.setitem(sys.modules, "shown", module)
    exec(compile(CODE, str(PAGE), "exec"), module.__dict__)
    made = module.RpegEliminateEntropyPass()
    assert isinstance(made, RpegPass)
    return made


@pytest.mark.parametrize(("coef", "left"), [("0.0", 0), ("0.01", 1)])
def test_the_pass_of_the_page(coef: str, left: int, shown: RpegPass) -> None:
    bonus = f"    bonus = entropy_bonus(y, coef={coef})\n    actor@i+1"
    text = grpo(("    actor@i+1", bonus), ("pg, kl,", "pg, kl, bonus,"))
    assert names(run(parse(text), shown)).count("entropy_bonus") == left


def test_an_only_loss_stays(shown: RpegPass) -> None:
    bonus = "    bonus = entropy_bonus(y, coef=0.0)\n    actor@i+1"
    text = grpo(("    actor@i+1", bonus), ("pg, kl,", "bonus,"))
    assert "entropy_bonus" in names(run(parse(text), shown))


@pytest.mark.parametrize("what", ["check", "format --check"])
def test_the_style_is_that_of_the_code(what: str) -> None:
    ruff = Path(sys.executable).with_name("ruff")
    command = [
        ruff,
        *what.split(),
        "--stdin-filename",
        "rpeg/passes/rpeg_eliminate_entropy.py",
        "-",
    ]
    run = subprocess.run(command, cwd=ROOT, input=CODE, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
