"""Every layout passes `rpeg verify` on every family of models, and every planted bug is caught."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rpeg.tools.ahead import Ahead
from rpeg.tools.console import read
from rpeg.tools.rpeg import main
from rpeg.tools.verifying.layouts import USUAL
from rpeg.tools.verifying.run import Request, verify
from rpeg.tools.verifying.show import Report
from tests.distributed.algorithms import ALGORITHMS
from tests.distributed.verifying import (
    ACTOR_TWICE,
    CRITIC_ALONE,
    GRPO,
    NORM_WEIGHTS,
    NORMALISER,
    OTHER_ORDER,
    OTHER_ROWS,
    SFT,
    STALE,
    SUM_OVER_TENSOR,
    SUMS_OVER_DATA,
    WHITENED_ALONE,
    planting,
    planting_by_layout,
    write,
)
from tests.unit.interp.pipelines import FAMILIES


def verified(file: Path, layouts: list[str], bug: str | None = None) -> Report:
    request = Request(read(str(file)), layouts=layouts, steps=3)
    return verify(request, print, None if bug is None else planting(bug))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_layout_is_the_interpreter(
    tmp_path: Path, family: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "p", GRPO, family)
    code = main(["verify", str(file), "--json", "--keep", str(tmp_path / "kept")])
    said = json.loads(capsys.readouterr().out)
    assert code == 0, said
    (report,) = said["pipelines"]
    assert [found["layout"] for found in report["layouts"]] == ["dp1", *USUAL]
    for found in report["layouts"]:
        assert found["greedy"]["of"] == 8
        assert 0.0 < found["logprob"] < 1e-5
        assert 0.0 < found["engine"] < 1e-5


@pytest.mark.slow
def test_supervised_pipelines(tmp_path: Path) -> None:
    report = verified(write(tmp_path / "p", SFT, "qwen3"), ["dp2", "tp2sp", "pp2"])
    assert report.ok, report


def test_a_stale_engine_is_caught_and_all_before_it_passes(tmp_path: Path) -> None:
    stale = caught(verified(write(tmp_path / "p", GRPO, "qwen3"), ["dp1"], STALE))
    assert "the engine's log-probs (`y`) differ first in step 2" in stale
    assert "a publish that is missing, late or wrong" in stale


def caught(report: Report) -> str:
    """What is said of the only layout that differs."""
    (found,) = [verdict.problem for verdict in report.verdicts if not verdict.ok]
    return found


NORM = "the gradient's norm differs first in step 1, optimizer step 1 of `{}`"
BUGS = {
    "dp2": (SUMS_OVER_DATA, NORM.format("actor")),
    "tp2": (SUM_OVER_TENSOR, NORM.format("actor")),
    "dp2zero1": (NORMALISER, "what `ppo_clip` comes to differs first in step 1, optimizer step 1"),
    "tp2sp": (NORM_WEIGHTS, NORM.format("actor")),
    "pp2": (STALE, "the engine's log-probs (`y`) differ first in step 2"),
}
"""By layout: what is wrong there, and what is said of it. One process has nothing to sum."""


def check_bugs(file: Path, bugs: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    """Each is caught for its own reason, and one process passes; the problems by layout."""
    plant = planting_by_layout({layout: bug for layout, (bug, _) in bugs.items()})
    report = verify(Request(read(str(file)), layouts=list(bugs), steps=2), print, plant)
    problems = {verdict.layout: verdict.problem for verdict in report.verdicts}
    assert problems.pop("dp1") == ""
    for layout, (_, said) in bugs.items():
        assert said in problems[layout], problems[layout]
    return problems


@pytest.mark.slow
def test_what_is_wrong_under_a_layout_is_caught(tmp_path: Path) -> None:
    problems = check_bugs(write(tmp_path / "p", GRPO, "qwen3"), BUGS)
    for layout in ("dp2", "tp2", "tp2sp"):
        assert "What the model says and what it costs agree up to there" in problems[layout]
    assert "a normaliser of one process's tokens" in problems["dp2zero1"]
    assert "most apart: model.layers." in problems["tp2sp"]
    assert "norm.weight" in problems["tp2sp"].partition("most apart")[2]


OF_CRITICS = {
    "dp2": (CRITIC_ALONE, NORM.format("critic")),
    "dp2zero1": (WHITENED_ALONE, "the advantages that it trains towards differ first in step 1"),
    "dp2+critic=tp2": (OTHER_ROWS, "values (`v`) differ first in step 1"),
    "tp2+critic=dp2": (
        OTHER_ORDER,
        "the returns that it trains towards differ first in step 1, optimizer step 1 of `critic`",
    ),
}
OF_A_SHARED_TRUNK = {"tp2": (ACTOR_TWICE, NORM.format("ac"))}


@pytest.mark.slow
def test_what_is_wrong_with_a_critic_is_caught(tmp_path: Path) -> None:
    check_bugs(write(tmp_path / "own", ALGORITHMS["ppo"], "qwen3"), OF_CRITICS)


@pytest.mark.slow
def test_what_is_wrong_with_a_shared_trunk_is_caught(tmp_path: Path) -> None:
    check_bugs(write(tmp_path / "shared", ALGORITHMS["ppo_shared"], "llama"), OF_A_SHARED_TRUNK)


MATRIX = ("tp2", "pp2", "dp2", "tp2pp2", "dp2+critic=tp2")
HEADS = {
    "grpo": [("actor", "policy")],
    "ppo": [("actor", "policy"), ("critic", "value")],
    "ppo_shared": [("ac", "policy"), ("ac", "value")],
}
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.slow
def test_one_table_of_algorithms_and_layouts(capsys: pytest.CaptureFixture[str]) -> None:
    """The command of docs/verify.md: every row is the same, or refused for a reason."""
    ppo = EXAMPLES / "sort_digits_ppo.rpeg"
    files = [f"{EXAMPLES / 'sort_digits.rpeg'}:grpo", f"{ppo}:ppo", f"{ppo}:ppo_shared"]
    small = ["--model", str(EXAMPLES.parent / "models" / "tiny-qwen3-digits"), "--steps", "3"]
    code = main(["verify", *files, *small, "--layouts", ",".join(MATRIX), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert code == 0, found
    for report in found["pipelines"]:
        for row in report["layouts"]:
            check_row(report["pipeline"], row)


def check_row(pipeline: str, row: Any) -> None:
    """All figures of each trained head are there, and none is zero that is rounded."""
    if row["layout"] == "dp2+critic=tp2" and pipeline != "ppo":
        assert row["verdict"] == "refused"
        assert row["refused"].startswith("there is no model `critic`; the pipeline has: ")
        return
    assert row["verdict"] == "same"
    held = {(part["model"], part["head"]): part for part in row["models"]}
    for model, head in HEADS[pipeline]:
        part = held[model, head]
        said = part["logprob" if head == "policy" else "value"]
        assert all(part[name] is not None for name in ("target", "loss", "grad_norm", "weights"))
        assert 0.0 < said < 1e-5 and 0.0 < part["weights"] < 1e-6


def test_a_program_that_fails_says_why(tmp_path: Path) -> None:
    bug = "raise SystemExit('error: the lights went out')"
    problem = caught(verified(write(tmp_path / "p", SFT, "llama"), ["dp1"], bug))
    assert problem == "its program failed: error: the lights went out"


@pytest.mark.slow
def test_what_a_pass_lets_run_ahead(tmp_path: Path) -> None:
    allowed = GRPO.replace("  step i", "  allow bounded_async(staleness=4)\n  step i")
    file = write(tmp_path / "p", allowed, "qwen3")
    ahead = Ahead(2, "sequence_mask")
    report = verify(Request(read(str(file)), layouts=["tp2"], steps=4, ahead=ahead), print)
    assert report.ok, report
