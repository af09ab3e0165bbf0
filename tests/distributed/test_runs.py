"""Runs of two processes: shares, merged metrics, verifiers, checkpoints, a death and a restart."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rpeg.rundir.lock import FolderLock
from rpeg.runtime.state.ledger import committed, expand
from tests.distributed.launching import lines, torchrun

REWARDS = """
def reward(prompt, completion, answer, metadata):
    if prompt == "7":
        raise ValueError("seven")
    return completion == answer
"""


def launch(folder: Path, **settings: Any) -> subprocess.CompletedProcess[str]:
    return torchrun("runs_program.py", folder, 2, RPEG_ALLOW_PYTHON="1", **settings)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [json.dumps({"prompt": str(k), "answer": str(k)}) + "\n" for k in range(10)]
    (tmp_path / "rows.jsonl").write_text("".join(rows))
    (tmp_path / "my_rewards.py").write_text(REWARDS)
    return tmp_path


def check_run(folder: Path) -> None:
    """What holds in every layout."""
    run = folder / "runs" / "two"
    metrics = lines(run / "metrics.jsonl")
    assert [line["step"] for line in metrics] == [1, 2, 3, 4, 5]
    for i, line in enumerate(metrics):
        rollouts = lines(run / "rollouts" / f"step-{i + 1:06d}.jsonl")
        ids = [(r["ordinal"], r["sample"]) for r in rollouts]
        assert ids == [(4 * i + k, s) for k in range(4) for s in range(2)]
        accurate = [r["rewards"]["acc"] for r in rollouts]
        assert line["reward/acc"] == sum(accurate) / 8
        assert line["tokens"] == sum(r["tokens"] for r in rollouts)
        in_evaluation = 1 if "eval/all" in line else 0
        sevens = [r["prompt"] for r in rollouts].count("7")
        assert line["verifier/correct/failed"] == sevens + in_evaluation
    assert [line["eval/all"] for line in metrics if "eval/all" in line] == [round(5 / 9, 9)] * 2
    used = [i for line in committed(run / "ledger.jsonl") for i in expand(line["ids"])]
    assert used == [(k, s) for k in range(20) for s in range(2)]
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step-000005"]
    assert sorted(p.name for p in (run / "checkpoints" / "step-000005").iterdir()) == [
        "ledger.pt",
        "manifest.json",
        "run.pt",
        "sum.pt",
        "train.pt",
    ]


def test_two_shares(folder: Path) -> None:
    done = launch(folder, restarts=1, DP="2", DIE="in a step")
    assert done.returncode == 0, done.stderr
    check_run(folder)
    metrics = lines(folder / "runs/two/metrics.jsonl")
    assert [line["share"] for line in metrics] == [0.75] * 5
    assert [line["total"] for line in metrics] == [2 * sum(range(4 * k)) for k in range(1, 6)]
    assert "resuming two after step 2" in done.stdout
    assert json.loads((folder / "runs/two/run.json").read_text())["attempt"] == 2
    undone = [line for line in lines(folder / "runs/two/ledger.jsonl") if "rolled_back" in line]
    assert [(u["step"], u["attempt"], u["rolled_back"]) for u in undone] == [(3, 1, 2)]


def test_two_copies_of_one_share(folder: Path) -> None:
    done = launch(folder, restarts=1, DP="1", DIE="saving")
    assert done.returncode == 0, done.stderr
    check_run(folder)
    assert "resuming two after step 2" in done.stdout
    lost = "error: process 1 lost another one, which may have said why\n"
    assert done.stderr in (lost, ""), "unless the launcher ended it before it could say so"
    notes = [line for line in done.stdout.splitlines() if line.startswith("note: verifier")]
    told = re.compile(r"note: verifier correct: \S+/my_rewards\.py:4: ValueError: seven; .*")
    assert len(notes) == 2 and all(map(told.fullmatch, notes)), "once a launch"


def test_a_failure_is_one_line_from_one_process(folder: Path) -> None:
    (folder / "rows.jsonl").write_text('{"prompt": "a"}\n{"text": "b"}\n')
    failed = launch(folder, DP="2")
    assert failed.returncode == 1
    said = failed.stderr.splitlines()
    assert said == [f"error: {folder}/rows.jsonl:2: no field `prompt` (found: text)"]


def test_a_folder_in_use_is_one_line_too(folder: Path) -> None:
    lock = FolderLock(folder / "runs" / "two")
    lock.take()
    refused = launch(folder, DP="2")
    assert refused.returncode == 1
    (line,) = refused.stderr.splitlines()
    assert line.startswith(f"error: another process (pid {os.getpid()}) is training in {folder}")
