"""The pass of docs/writing-a-pass.md works as the page says."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from rpeg.passes.base import RpegPass
from tests.unit.passes.pipelines import grpo, names, parse, run

PAGE = Path(__file__).parents[3] / "docs" / "writing-a-pass.md"


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> RpegPass:
    """The page's only Python block, as a pass."""
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), flags=re.M | re.S)
    module = ModuleType("shown")
    monkeypatch.setitem(sys.modules, "shown", module)
    exec(compile(code, str(PAGE), "exec"), module.__dict__)
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
