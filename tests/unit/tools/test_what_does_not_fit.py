"""`explain` and `simulate` of a plan that lacks memory: a line says so before the figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.tools.commands import Shell

EXAMPLE = Path(__file__).parents[3] / "examples" / "ppo_7b_gh200.rpeg"
LINE = "does not fit: the busiest GPU of `all` (any of 0 to 3) has 96.0 GiB and needs "


def full(shell: Shell) -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    shell.write(text=text.replace(", resid(opt=host)", "").replace("resid(opt=host),", ""))


@pytest.mark.parametrize("command", [["explain"], ["simulate", "--steps", "2"]])
def test_a_line_says_so(command: list[str], shell: Shell) -> None:
    full(shell)
    done = shell(*command, "p.rpeg", "--cluster", "alps-1")
    (line,) = [line for line in done.out.splitlines() if "does not fit" in line]
    assert (done.code, line.startswith(LINE)) == (0, True)
    assert line.endswith(" while `y` runs: see rpeg check")
    assert "does not fit" not in shell(*command, str(EXAMPLE), "--cluster", "alps-1").out


def test_a_report_says_so(shell: Shell) -> None:
    full(shell)
    done = shell("report", "p.rpeg", "--cluster", "alps-1", "-o", "p.html")
    assert (done.code, done.out) == (0, "p.html\n")
    assert done.err.startswith(f"note: {LINE}")


def test_as_json(shell: Shell) -> None:
    full(shell)
    words = ("--cluster", "alps-1", "--steps", "2", "--json")
    assert json.loads(shell("simulate", "p.rpeg", *words).out)["fits"] is False
    assert json.loads(shell("simulate", str(EXAMPLE), *words).out)["fits"] is True
