"""Training with the engine up to two steps ahead, in one pool and in two: bounds, kills, parity."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rpeg.runtime.state.ledger import committed, expand
from tests.distributed.launching import in_turn, lines, torchrun

pytestmark = pytest.mark.slow

STEPS, WINDOW = 8, 2


def train(
    folder: Path, pools: str, *, name: str = "run", restarts: int = 0, **environment: str
) -> list[dict[str, Any]]:
    """The steps that run `name` logged."""
    processes = sum(int(item.split(":")[1]) for item in pools.split(","))
    run = folder / name
    settings = {"POOLS": pools, "RPEG_RUN_DIR": str(run)} | environment
    done = torchrun("pools_training.py", folder, processes, restarts=restarts, **settings)
    assert done.returncode == 0, done.stderr
    assert json.loads((run / "run.json").read_text())["attempt"] == 1 + restarts
    return logged(run)


def logged(run: Path) -> list[dict[str, Any]]:
    """The steps of a run, whose books are in order."""
    metrics = lines(run / "metrics.jsonl")
    assert [line["step"] for line in metrics] == list(range(1, STEPS + 1))
    check_books(run)
    return metrics


def check_books(run: Path) -> None:
    """Each step and each sample was trained on once, in order, and none too old."""
    counted = committed(run / "ledger.jsonl")
    assert [line["step"] for line in counted] == list(range(1, STEPS + 1))
    used = [i for line in counted for i in expand(line["ids"])]
    assert used == [(k, s) for k in range(4 * STEPS) for s in range(4)]
    for step in range(1, STEPS + 1):
        rollouts = lines(run / "rollouts" / f"step-{step:06d}.jsonl")
        assert len(rollouts) == 16
        assert all(0 <= r["lag"] <= WINDOW for r in rollouts)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [json.dumps({"prompt": f"{k}{k + 1}{k}=", "answer": ""}) + "\n" for k in range(8)]
    (tmp_path / "rows.jsonl").write_text("".join(rows))
    return tmp_path


def test_a_killed_engine_and_the_newest_weights(folder: Path) -> None:
    metrics = train(folder, "rollout:1,trainer:2", restarts=1, DIE="0", DIE_IN="6")
    for line in metrics:
        assert 0 <= line["version/actor"] < line["step"]
        assert line["lag/max"] <= WINDOW
        assert {"time/generate", "time/wait_actor", "time/take_y", "queue/y"} <= line.keys()
        assert all(0 < line[name] <= 1 for name in ("busy/rollout", "busy/trainer"))


def test_a_killed_trainer_and_the_oldest_weights(folder: Path) -> None:
    metrics = train(
        folder,
        "rollout:2,trainer:2",
        restarts=1,
        DIE="3",
        DIE_IN="5",
        TP="trainer",
        RPEG_VERSIONS="oldest",
    )
    resumed = 4
    expected = [max(0, i - WINDOW) if i < resumed else max(resumed, i - WINDOW) for i in range(8)]
    assert [line["version/actor"] for line in metrics] == expected


def test_two_pools_train_what_one_pool_does(folder: Path) -> None:
    """Where both sample from the oldest weights of the window."""
    one = train(folder, "all:1", name="one")
    two = train(folder, "rollout:1,trainer:1", name="two", RPEG_VERSIONS="oldest")
    same_bits(one, two)


def same_bits(one: list[dict[str, Any]], two: list[dict[str, Any]]) -> None:
    same = ("hash/weights", "hash/samples", "loss", "grad_norm", "reward/r", "lag/max", "tokens")
    for name in same:
        assert [line[name] for line in one] == [line[name] for line in two], name


def test_random_delays_and_a_free_run_made_again(folder: Path) -> None:
    """Whatever the delays, the bound is kept; a log of choices repeats a run's bits."""
    done = in_turn(folder, {str(seed): {"DELAYS": str(seed)} for seed in range(5)})
    assert done.returncode == 0, done.stderr
    runs = [logged(folder / str(seed)) for seed in range(5)]
    chosen = [[line["version/actor"] for line in run] for run in runs]
    free = max(range(5), key=lambda k: len({i - v for i, v in enumerate(chosen[k])}))
    log = str(folder / str(free) / "metrics.jsonl")
    again = train(folder, "rollout:1,trainer:1", name="again", RPEG_VERSIONS=log)
    assert [line["version/actor"] for line in again] == chosen[free]
    same_bits(runs[free], again)
    print("lags", [[int(i - v) for i, v in enumerate(versions)] for versions in chosen])
