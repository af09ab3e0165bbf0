"""`rpeg launch`, `rollouts` and `report`: commands on packages and on folders of runs."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from rpeg.tools.rpeg import main
from tests.unit.tools.commands import Shell


def test_launch_needs_a_package(shell: Shell) -> None:
    done = shell("launch", "tiny")
    assert (done.code, done.err) == (
        1,
        "error: tiny has no launch.sh: it is not what rpeg compile writes\n",
    )


def test_launch_passes_the_command_line_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    script = 'env | grep "^RPEG_\\|^PYTHON=" | sort\nexit 7\n'
    (tmp_path / "launch.sh").write_text(script)
    for name in [name for name in os.environ if name.startswith("RPEG_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    assert main(["launch", str(tmp_path), "--seed", "3", "--run-dir", "a b", "--allow-python"]) == 7
    assert capfd.readouterr().out.splitlines() == [
        f"PYTHON={sys.executable}",
        *("RPEG_ALLOW_PYTHON=1", "RPEG_RUN_DIR=a b", "RPEG_SEED=3"),
    ]


@pytest.mark.parametrize("command", ["run", "launch", "verify", "report", "rollouts"])
def test_packages_that_are_not_installed(
    command: str, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rpeg.tools.launching._installed", lambda module: module != "torch")
    (shell.folder / "tiny" / "launch.sh").write_text("exit 0\n")
    before = shell.names()
    done = shell(command, "p.rpeg" if command in ("run", "verify") else "tiny")
    assert (done.code, done.err) == (1, "error: running needs torch: pip install 'rpeg[run]'\n")
    assert shell.names() == before


ROLLOUT = {
    **{"step": 2, "ordinal": 0, "prompt": "[1]+1=", "answer": None, "completion": "2 [red]"},
    **{"finished": True, "tokens": 2, "version": 1, "lag": 0},
}


@pytest.fixture
def run_folder(shell: Shell) -> Path:
    folder = shell.folder / "runs" / "p"
    (folder / "rollouts").mkdir(parents=True)
    rows = [{**ROLLOUT, "sample": k, "rewards": {"r": k / 4}} for k in range(4)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "rollouts" / "step-000002.jsonl").write_text(text)
    (folder / "metrics.jsonl").write_text('{"step": 1, "seconds": 1.0, "loss": 0.5}\n')
    return folder


def test_rollouts(shell: Shell, run_folder: Path) -> None:
    done = shell("rollouts", "runs/p")
    assert done.code == 0
    assert "step 2" in done.out
    assert "[1]+1=" in done.out
    assert "2 [red]" in done.out
    assert done.err == ""
    done = shell("rollouts", "runs/p", "--json", "--sort", "r", "--limit", "2")
    assert done.err == "note: 2 of 4 completions of this step: --limit 4 shows all\n"
    assert [json.loads(line)["sample"] for line in done.out.splitlines()] == [3, 2]
    done = shell("rollouts", "runs/p", "--json", "--sort", "r", "--worst", "--limit", "1")
    assert [json.loads(line)["sample"] for line in done.out.splitlines()] == [0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tiny"], "tiny holds no rollouts"),
        (["runs/p", "--step", "9"], "no rollouts of step 9: there are steps 2 to 2"),
        (["runs/p", "--sort", "acc"], "no reward `acc` in these rollouts: there is r"),
    ],
    ids=["no run", "no step", "no reward"],
)
def test_rollouts_that_are_not_there(
    words: list[str], said: str, shell: Shell, run_folder: Path
) -> None:
    done = shell("rollouts", *words)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"error: {said}")


def test_report(shell: Shell, run_folder: Path) -> None:
    done = shell("report", "runs/p")
    assert (done.code, done.out) == (0, "runs/p/report.png\n")
    assert (run_folder / "report.png").read_bytes()[:4] == b"\x89PNG"
    assert shell("report", "tiny").err.startswith("error: tiny holds no metrics")
