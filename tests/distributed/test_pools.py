"""Several pools in one launch: rows cross between unlike widths, home keeps the books of all."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rpeg.runtime.logs.trace import read_trace
from rpeg.runtime.state.ledger import committed, expand
from tests.distributed.launching import lines, torchrun

STEPS = 6


def launch(folder: Path, pools: str, **settings: Any) -> subprocess.CompletedProcess[str]:
    processes = sum(int(item.split(":")[1]) for item in pools.split(","))
    return torchrun("pools_program.py", folder, processes, POOLS=pools, **settings)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [json.dumps({"prompt": str(k), "answer": str(k)}) + "\n" for k in range(10)]
    (tmp_path / "rows.jsonl").write_text("".join(rows))
    return tmp_path


def check_run(folder: Path, steps: int = STEPS) -> None:
    """Each step once, with what both pools said of it; each sample once, in order."""
    run = folder / "runs" / "pools"
    metrics = lines(run / "metrics.jsonl")
    assert [line["step"] for line in metrics] == list(range(1, steps + 1))
    for line in metrics:
        assert line["generated"] == 8
        assert {"time/put_y", "time/take_y", "tokens_per_s", "queue/y"} <= line.keys()
        assert 0 <= line["busy/rollout"] <= 1
    used = [i for line in committed(run / "ledger.jsonl") for i in expand(line["ids"])]
    assert used == [(k, s) for k in range(4 * steps) for s in range(2)]


def tracks(folder: Path) -> dict[int, set[str]]:
    """What each process did, by the trace."""
    events = read_trace(folder / "runs/pools/trace.json")
    done = [(event["tid"], event["name"]) for event in events]
    return {process: {name for p, name in done if p == process} for process, _ in done}


def named(folder: Path) -> list[str]:
    """The processes' names in the trace, which a finished run leaves as whole JSON."""
    events = json.loads((folder / "runs/pools/trace.json").read_text())
    return [event["args"]["name"] for event in events if event["name"] == "thread_name"]


def test_one_share_to_two_with_a_death_at_home(folder: Path) -> None:
    done = launch(folder, "rollout:1,trainer:2", restarts=1, DIE="2")
    assert done.returncode == 0, done.stderr
    check_run(folder)
    assert "resuming pools after step 2" in done.stdout
    assert done.stdout.count("note: rollout: hello") == 2
    assert tracks(folder) == {0: {"put_y"}, 1: {"take_y"}, 2: {"take_y"}}
    assert named(folder) == ["rollout 0", "trainer 1", "trainer 2"]
    names = {p.name for p in (folder / "runs/pools/checkpoints/step-000006").iterdir()}
    assert names == {"ledger.pt", "manifest.json", "run.pt", "train.pt"}


@pytest.mark.slow
def test_two_shares_to_two_copies_with_a_death_away(folder: Path) -> None:
    done = launch(folder, "trainer:2,rollout:2", restarts=1, DIE="3", TP="trainer", CAPACITY="1")
    assert done.returncode == 0, done.stderr
    check_run(folder)
    undone = [line for line in lines(folder / "runs/pools/ledger.jsonl") if "rolled_back" in line]
    assert {u["rolled_back"] for u in undone} <= {2}


@pytest.mark.slow
def test_a_stop_at_home_ends_all_three(folder: Path) -> None:
    done = launch(folder, "rollout:1,ref:1,trainer:2", STOP="1")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    check_run(folder, steps=3)
    assert tracks(folder)[1] == {"take_asked", "take_seen", "put_answered"}
    assert json.loads((folder / "runs/pools/run.json").read_text())["stopped"]
    again = launch(folder, "rollout:1,ref:1,trainer:2", STOP="1")
    assert again.returncode == 0, again.stderr
    assert "already done: pools finished at step 3" in again.stdout


def test_rows_that_do_not_divide_are_one_line(folder: Path) -> None:
    failed = launch(folder, "rollout:1,trainer:3")
    assert failed.returncode == 1
    assert failed.stderr.splitlines() == [
        "error: a share of 4 rows does not divide among the 3 data-parallel shares of another pool "
        "or model: change the batch's size, or `dp` of one of them"
    ]


def test_a_dead_peer_ends_the_launch(folder: Path) -> None:
    failed = launch(folder, "rollout:1,trainer:1", DIE="0")
    assert failed.returncode == 1
    assert "Traceback" not in failed.stderr
