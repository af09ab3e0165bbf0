"""`rpeg report` of a file: the page it writes, and what it refuses."""

from __future__ import annotations

import json

import pytest

from tests.unit.tools.commands import Shell
from tests.unit.tools.report.reader import Reader, at
from tests.unit.tools.report.sample import EXAMPLES

PPO = str(EXAMPLES / "ppo_critic.rpeg")
TWO_PLANS = str(EXAMPLES / "ppo_7b_gh200.rpeg")


def test_the_page_holds_the_figures_of_the_json(shell: Shell) -> None:
    done = shell("report", PPO, "--cluster", "h100-8", "-o", "page.html", "--json")
    assert (done.code, done.err) == (0, "")
    table, reader = json.loads(done.out), Reader()
    reader.feed((shell.folder / "page.html").read_text(encoding="utf-8"))
    assert reader.loose == []
    assert [(key, value) for key, value in reader.figures if at(table, key) != value] == []
    shown = {key for key, _ in reader.figures}
    assert {f"stages.{k}.seconds" for k in range(len(table["stages"]))} <= shown
    assert {"period_s", "cost.usd_per_step", "bounds.load"} <= shown


def test_a_page_is_named_for_its_pipeline(shell: Shell) -> None:
    done = shell("report", PPO, "--plan", "node")
    assert (done.code, done.out) == (0, "ppo_critic.html\n")
    assert (shell.folder / "ppo_critic.html").is_file()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((TWO_PLANS,), 2, "where is it to run?"),
        (("nowhere",), 1, "nowhere: there is no such folder; give"),
        (("p.mlir",), 2, "rpeg report takes .rpeg text"),
        (("tiny", "--cluster", "alps"), 2, "tiny is the folder of a run"),
        (
            (PPO, "--cluster", "h100-8", "-o", "p.mlir/x.html"),
            1,
            "p.mlir/x.html can't be written: p.mlir",
        ),
    ],
)
def test_refusals(words: tuple[str, ...], code: int, said: str, shell: Shell) -> None:
    (shell.folder / "p.mlir").write_text("")
    before = shell.names()
    done = shell("report", *words)
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith(f"error: {said}")
    assert shell.names() == before
