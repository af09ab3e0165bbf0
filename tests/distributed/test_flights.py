"""Training in completion order, on a pool that samples and one that trains, with random delays and
lengths of a heavy tail: every policy for what grows too old comes up, and the bound holds.
"""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rpeg.runtime.state.ledger import committed, expand
from tests.distributed.launching import in_turn, lines, torchrun

pytestmark = pytest.mark.slow

STEPS, SIZE, N = 5, 4, 2
ALWAYS = {"MAX_TOKENS": "60", "N": str(N), "STEPS": str(STEPS), "WINDOW": "1"}
"""Most samples end within 20 tokens, some not at all."""
SYNCHRONOUS = {"WINDOW": "0", "MAX_TOKENS": "30"}
RESUMED = {"OVERFLOW": "resume", "OLD_SPANS": "mask"}
FREE = {
    "waits": {"OVERFLOW": "wait"},
    "goes on": RESUMED,
    "index": SYNCHRONOUS,
    "completion": SYNCHRONOUS | {"OVERFLOW": "wait"},
}
"""Runs that sample from the newest weights that they find."""
CHOSEN = {
    "truncate": {"OVERFLOW": "truncate"},
    "defer": {"OVERFLOW": "defer"},
    "drop": {"OVERFLOW": "drop"},
    "mask": RESUMED,
    "old groups": {"OVERFLOW": "resume", "OLD_SPANS": "drop"},
    "regenerate": {"OVERFLOW": "resume", "OLD_SPANS": "regenerate"},
    "head": {"OVERFLOW": "drop", "BOUND": "head"},
}
"""Runs whose versions were drawn beforehand: whatever the times, some groups grow too old."""


def drawn(folder: Path, seed: int) -> str:
    """The log of a run that found the weights of the step at work, so that groups are overtaken;
    later on now and then older ones, which newer ones replace between two tokens.
    """
    draw = random.Random(seed)
    logged = []
    for i in range(STEPS):
        late = i > 2 and draw.random() < 0.5
        place = "renewal/actor/0/0/"
        renewed = {f"{place}token": draw.randrange(1, 12), f"{place}version": i} if late else {}
        logged.append({"step": i + 1, "version/actor": i - late, **renewed})
    log = folder / f"drawn-{seed}.jsonl"
    log.write_text("".join(json.dumps(line) + "\n" for line in logged))
    return str(log)


def write_rows(folder: Path) -> None:
    rows = [json.dumps({"prompt": f"{k}{k + 1}{k}=", "answer": ""}) + "\n" for k in range(8)]
    (folder / "rows.jsonl").write_text("".join(rows))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_rows(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of all runs, which were delayed at random."""
    folder = tmp_path_factory.mktemp("runs")
    write_rows(folder)
    chosen = {
        name: settings | {"RPEG_VERSIONS": drawn(folder, seed)}
        for seed, (name, settings) in enumerate(CHOSEN.items())
    }
    again = {"again": RESUMED | {"RPEG_VERSIONS": str(folder / "goes on" / "metrics.jsonl")}}
    wanted = FREE | again | chosen
    done = in_turn(
        folder,
        {
            name: ALWAYS | {"DELAYS": str(seed)} | settings
            for seed, (name, settings) in enumerate(wanted.items())
        },
    )
    assert done.returncode == 0, done.stderr
    return folder


def read(folder: Path, name: str) -> list[dict[str, Any]]:
    """What a run logged, whose books are in order."""
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


def test_without_a_window_it_is_synchronous(runs: Path) -> None:
    """The same samples, to the bit; the rows of a batch in another order."""
    index, completion = read(runs, "index"), read(runs, "completion")
    assert [line["hash/weights"] for line in index] != [line["hash/weights"] for line in completion]
    for ours, theirs in zip(completion, index, strict=True):
        assert ours["hash/samples"] == theirs["hash/samples"]
        for name in ("loss", "grad_norm", "reward/r"):
            assert ours[name] == pytest.approx(theirs[name], rel=1e-6, abs=1e-6), name


@pytest.mark.parametrize("name", ["waits", "goes on", *CHOSEN])
def test_no_token_that_trains_is_past_the_bound(runs: Path, name: str) -> None:
    """The trainer of these runs compares every token's version with its step, too."""
    logged = read(runs, name)
    oldest = max(lag for line in logged for lag in lags(line))
    assert (oldest > 1) if name == "head" else (oldest == 1)
    for line in logged:
        tokens = sum(lags(line).values())
        mean = sum(lag * n for lag, n in lags(line).items()) / tokens
        trained = line["tokens"] - line.get("lag/old", 0)
        assert (tokens, mean) == (trained, pytest.approx(line["lag/mean"]))


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("truncate", "truncated"),
        ("defer", "again"),
        ("drop", "dropped"),
        ("regenerate", "again"),
        ("head", None),
        ("mask", None),
        ("old groups", None),
    ],
)
def test_what_becomes_of_groups_that_grow_too_old(runs: Path, name: str, what: str | None) -> None:
    logged = read(runs, name)
    counts = {w: fired(logged, w) for w in ("truncated", "dropped", "again")}
    assert {w for w, count in counts.items() if count} == ({what} if what else set())


@pytest.mark.parametrize("name", ["mask", "old groups"])
def test_spans_that_grow_too_old_train_nothing(runs: Path, name: str) -> None:
    assert sum(line["lag/old"] for line in read(runs, name)) > 0


def test_groups_with_a_span_that_is_too_old_train_nothing(runs: Path) -> None:
    read(runs, "old groups")
    trained: dict[int, set[bool]] = {}
    for path in (runs / "old groups" / "rollouts").iterdir():
        for sample in lines(path):
            trained.setdefault(sample["ordinal"], set()).add(sample["trained"] > 0)
    assert {False} in trained.values()
    assert all(len(told) == 1 for told in trained.values())


def test_a_free_run_is_made_again_from_its_log(runs: Path) -> None:
    """The log repeats every version, between two tokens too, and the order of ends."""
    free, again = read(runs, "goes on"), read(runs, "again")
    assert sum(line.get("renewed/actor", 0) for line in free) > 0
    for name in ("hash/weights", "hash/samples", "loss", "grad_norm", "tokens", "flight/y"):
        assert [line[name] for line in free] == [line[name] for line in again], name


def launch(folder: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    wanted = {"POOLS": "rollout:1,trainer:1", "RPEG_RUN_DIR": str(folder / "run")} | ALWAYS
    return torchrun("pools_training.py", folder, 2, **(wanted | settings))


def test_the_certificate_ends_a_run_that_lets_them_grow_too_old(folder: Path) -> None:
    versions = drawn(folder, 2)
    done = launch(folder, OVERFLOW="drop", TOO_WIDE="1", RPEG_VERSIONS=versions)
    assert done.returncode != 0
    assert "versions old, the pipeline allows 1" in done.stderr


def test_a_killed_engine_samples_again_what_was_in_flight(folder: Path) -> None:
    settings = {"OVERFLOW": "truncate", "DIE": "0", "DIE_IN": "3"} | ALWAYS
    run = {"POOLS": "rollout:1,trainer:1", "RPEG_RUN_DIR": str(folder / "run")}
    done = torchrun("pools_training.py", folder, 2, restarts=1, **(run | settings))
    assert done.returncode == 0, done.stderr
    assert max(lag for line in read(folder, "run") for lag in lags(line)) <= 1
