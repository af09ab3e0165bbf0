"""Every layout passes `rpeg verify` on every family of models, and every planted bug is caught."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rpeg.tools.compiling import Ahead
from rpeg.tools.console import read
from rpeg.tools.rpeg import main
from rpeg.tools.verifying.layouts import USUAL
from rpeg.tools.verifying.run import Report, Request, verify
from tests.distributed.verifying import (
    GRPO,
    NORM_WEIGHTS,
    NORMALISER,
    SFT,
    STALE,
    SUM_OVER_TENSOR,
    SUMS_OVER_DATA,
    planting,
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
    report = json.loads(capsys.readouterr().out)
    assert code == 0, report
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


BUGS = {
    "gradients are not summed over replicas": (SUMS_OVER_DATA, "dp2"),
    "a sum over tensor-parallel ranks is missing": (SUM_OVER_TENSOR, "tp2"),
    "each process divides by its own tokens": (NORMALISER, "dp2"),
    "norms are not synchronised": (NORM_WEIGHTS, "tp2sp"),
}


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS)
def test_gradients_that_are_wrong_under_a_layout_are_caught(tmp_path: Path, bug: str) -> None:
    """One process passes, whatever is planted: what is missing there has nothing to sum."""
    planted, layout = BUGS[bug]
    report = verified(write(tmp_path / "p", GRPO, "qwen3"), [layout], planted)
    assert [verdict.layout for verdict in report.verdicts if not verdict.ok] == [layout]
    problem = caught(report)
    assert "the gradient's norm differs first in step 1, optimizer step 1 of `actor`" in problem
    assert "The log-probs before it agree" in problem
    if bug == "norms are not synchronised":
        assert "most apart: model.layers." in problem
        assert "norm.weight" in problem.partition("most apart")[2]


@pytest.mark.slow
def test_a_stale_engine_is_caught_under_a_layout(tmp_path: Path) -> None:
    report = verified(write(tmp_path / "p", GRPO, "llama"), ["tp2"], STALE)
    problems = [verdict.problem for verdict in report.verdicts]
    assert all("the engine's log-probs (`y`) differ first in step 2" in p for p in problems)
    assert len(problems) == 2


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
