"""Training in completion order, on a pool that samples and one that trains: every policy for what
grows too old comes up, and the bound holds.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rpeg.runtime.state.ledger import committed, expand
from tests.distributed.launching import lines, torchrun

pytestmark = pytest.mark.slow

STEPS, SIZE, N = 4, 4, 4
LONG = {"MAX_TOKENS": "100", "STEPS": str(STEPS)}
"""Most samples end within 20 tokens, some not at all."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [json.dumps({"prompt": f"{k}{k + 1}{k}=", "answer": ""}) + "\n" for k in range(8)]
    (tmp_path / "rows.jsonl").write_text("".join(rows))
    return tmp_path


def launch(folder: Path, name: str, **settings: str) -> subprocess.CompletedProcess[str]:
    run = {"POOLS": "rollout:1,trainer:1", "RPEG_RUN_DIR": str(folder / name)}
    return torchrun("pools_training.py", folder, 2, **(run | LONG | settings))


def train(folder: Path, name: str, *, restarts: int = 0, **settings: str) -> list[dict[str, Any]]:
    """What a run logged, whose books are in order."""
    run = {"POOLS": "rollout:1,trainer:1", "RPEG_RUN_DIR": str(folder / name)}
    wanted = run | LONG | settings
    done = torchrun("pools_training.py", folder, 2, restarts=restarts, **wanted)
    assert done.returncode == 0, done.stderr
    logged = lines(folder / name / "metrics.jsonl")
    assert [line["step"] for line in logged] == list(range(1, STEPS + 1))
    check_books(folder / name, logged)
    return logged


def check_books(run: Path, logged: list[dict[str, Any]]) -> None:
    """Each step trains whole groups, no sample twice, and none that was dropped."""
    counted = committed(run / "ledger.jsonl")
    used = [i for line in counted if "ids" in line for i in expand(line["ids"])]
    lost = [i for line in counted if "collect" in line for i in expand(line["dropped"]["too old"])]
    assert len(used) == STEPS * SIZE * N
    assert len({*used, *lost}) == len(used) + len(lost)
    assert len(lost) == N * sum(line.get("overflow/y/dropped", 0) for line in logged)
    assert {(ordinal, k) for ordinal, _ in used for k in range(N)} == {*used}


def lags(line: dict[str, Any]) -> dict[int, float]:
    """Lag -> trained tokens of a step."""
    place = "lag/histogram/"
    return {int(k.removeprefix(place)): v for k, v in line.items() if k.startswith(place)}


def fired(logged: list[dict[str, Any]], what: str) -> float:
    return float(sum(line[f"overflow/y/{what}"] for line in logged))


def same_bits(one: list[dict[str, Any]], two: list[dict[str, Any]]) -> None:
    for name in ("hash/weights", "hash/samples", "loss", "grad_norm", "tokens", "flight/y"):
        assert [line[name] for line in one] == [line[name] for line in two], name


def test_without_a_window_it_is_synchronous(folder: Path) -> None:
    """The same samples, to the bit; the rows of a batch in another order."""
    settings = {"WINDOW": "0", "MAX_TOKENS": "30"}
    index = train(folder, "index", **settings)
    completion = train(folder, "completion", OVERFLOW="wait", **settings)
    assert [line["hash/weights"] for line in index] != [line["hash/weights"] for line in completion]
    for ours, theirs in zip(completion, index, strict=True):
        assert ours["hash/samples"] == theirs["hash/samples"]
        for name in ("loss", "grad_norm", "reward/r"):
            assert ours[name] == pytest.approx(theirs[name], rel=1e-6, abs=1e-6), name


def fresh(folder: Path) -> str:
    """The log of a run whose every step started from its own version: whatever the times, as many
    groups as may be are in flight, and the long ones are overtaken.
    """
    log = folder / "fresh.jsonl"
    lines = [json.dumps({"step": i + 1, "version/actor": i}) + "\n" for i in range(STEPS)]
    log.write_text("".join(lines))
    return str(log)


def test_random_delays_and_a_batch_that_waits(folder: Path) -> None:
    logged = train(folder, "run", OVERFLOW="wait", DELAYS="3")
    assert max(lag for line in logged for lag in lags(line)) == 2
    assert any(line["flight/y"] for line in logged)


@pytest.mark.parametrize(
    ("overflow", "what"), [("truncate", "truncated"), ("defer", "again"), ("drop", "dropped")]
)
def test_what_grew_too_old(folder: Path, overflow: str, what: str) -> None:
    logged = train(folder, "run", OVERFLOW=overflow, RPEG_VERSIONS=fresh(folder))
    assert max(lag for line in logged for lag in lags(line)) <= 2
    assert fired(logged, what) > 0
    assert fired(logged, what) == sum(fired(logged, w) for w in ("truncated", "dropped", "again"))


def test_samples_that_go_on_and_a_free_run_made_again(folder: Path) -> None:
    """Spans past the bound train nothing; the log repeats every version and the order of ends."""
    settings = {"OVERFLOW": "resume", "OLD_SPANS": "mask", "WINDOW": "1"}
    free = train(folder, "free", DELAYS="1", **settings)
    assert max(lag for line in free for lag in lags(line)) == 1
    assert sum(line.get("renewed/actor", 0) for line in free) > 0
    log = str(folder / "free" / "metrics.jsonl")
    same_bits(free, train(folder, "again", DELAYS="2", RPEG_VERSIONS=log, **settings))


def test_under_head_they_grow_older_and_it_is_told(folder: Path) -> None:
    logged = train(folder, "run", OVERFLOW="drop", BOUND="head", RPEG_VERSIONS=fresh(folder))
    assert max(lag for line in logged for lag in lags(line)) > 2
    assert not fired(logged, "dropped")
    for line in logged:
        tokens = sum(lags(line).values())
        mean = sum(lag * n for lag, n in lags(line).items()) / tokens
        assert (tokens, mean) == (line["tokens"], pytest.approx(line["lag/mean"]))


def test_the_certificate_ends_a_run_that_lets_them_grow_too_old(folder: Path) -> None:
    done = launch(folder, "run", OVERFLOW="drop", TOO_WIDE="1", RPEG_VERSIONS=fresh(folder))
    assert done.returncode != 0
    assert "versions old, the pipeline allows 2" in done.stderr


def test_a_killed_engine_samples_again_what_was_in_flight(folder: Path) -> None:
    logged = train(folder, "run", restarts=1, OVERFLOW="truncate", DIE="0", DIE_IN="3")
    assert max(lag for line in logged for lag in lags(line)) <= 2
