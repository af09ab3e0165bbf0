"""Weights cross between pools while both work: bit by bit, in order, within the window."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.distributed.launching import lines, torchrun
from tests.unit.interp.pipelines import write_model, write_rows

STEPS = 6
MODEL = {"num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2}


def launch(
    folder: Path, layout: str, processes: int, **settings: Any
) -> subprocess.CompletedProcess[str]:
    write_model(folder / "model", **MODEL)
    write_rows(folder / "rows.jsonl")
    return torchrun("publish_program.py", folder, processes, LAYOUT=layout, **settings)


def said(folder: Path, process: int) -> list[dict[str, Any]]:
    """What a process wrote of the versions that it used."""
    return lines(folder / f"process-{process}.jsonl")


def check(folder: Path, engines: int, processes: int, window: int) -> list[int]:
    """Engines sampled from what the trainer published; the versions, step by step."""
    published = said(folder, engines)
    digests = {line["version"]: line["digest"] for line in published if line["attempt"] == 1}
    assert len(set(digests.values())) == len(digests)  # it did train
    for process in range(engines, processes):
        assert said(folder, process) == published
    used = said(folder, 0)
    for process in range(engines):
        assert said(folder, process) == used
    for line in used:
        assert max(0, line["step"] - window) <= line["version"] <= line["step"]
        if line["attempt"] == 1:
            assert line["digest"] == digests[line["version"]]
    return [line["version"] for line in used]


def metrics(folder: Path) -> list[dict[str, Any]]:
    return lines(folder / "runs/publish/metrics.jsonl")


def test_from_tensor_parallel_shards_to_one_engine(tmp_path: Path) -> None:
    done = launch(tmp_path, "tp2", 3, WINDOW="2", RPEG_VERSIONS="oldest")
    assert done.returncode == 0, done.stderr
    assert check(tmp_path, engines=1, processes=3, window=2) == [0, 0, 0, 1, 2, 3]
    steps = metrics(tmp_path)
    assert [line["step"] for line in steps] == list(range(1, STEPS + 1))
    assert [line["lag/max"] for line in steps] == [0, 1, 2, 2, 2, 2]
    assert [line["version/actor"] for line in steps] == [0, 0, 0, 1, 2, 3]
    published = {line["version"]: line["digest"] for line in said(tmp_path, 1)}
    assert [line["hash/weights"] for line in steps] == [published[k + 1] for k in range(STEPS)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "engines", "processes", "settings"),
    [
        ("tp2pp2", 1, 5, {"WINDOW": "1"}),
        ("pp2vpp2", 2, 4, {"WINDOW": "2"}),
        ("dp2", 2, 4, {"WINDOW": "0", "DTYPE": "bf16"}),
    ],
)
def test_from_any_layout_to_engines(
    layout: str, engines: int, processes: int, settings: dict[str, str], tmp_path: Path
) -> None:
    done = launch(tmp_path, layout, processes, ENGINES=str(engines), **settings)
    assert done.returncode == 0, done.stderr
    check(tmp_path, engines, processes, int(settings["WINDOW"]))


@pytest.mark.slow
def test_samples_in_flight_go_on_with_new_weights(tmp_path: Path) -> None:
    done = launch(tmp_path, "dp1", 2, WINDOW="2", RENEW="1", TOKENS="200")
    assert done.returncode == 0, done.stderr
    check(tmp_path, engines=1, processes=2, window=2)
    steps = metrics(tmp_path)
    assert all(line["lag/max"] <= 2 for line in steps)
    renewed = [line for line in steps if line.get("renewed/actor")]
    print(len(renewed), "of", len(steps), "steps")  # how often is a matter of luck
    assert all(line["version/min"] < line["version/max"] for line in renewed)


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_death_at_staleness_two(victim: int, tmp_path: Path) -> None:
    done = launch(tmp_path, "dp1", 2, restarts=1, WINDOW="2", DIE=str(victim))
    assert done.returncode == 0, done.stderr
    check(tmp_path, engines=1, processes=2, window=2)
    steps = metrics(tmp_path)
    assert [line["step"] for line in steps] == list(range(1, STEPS + 1))
    assert all(line["lag/max"] <= 2 for line in steps)
