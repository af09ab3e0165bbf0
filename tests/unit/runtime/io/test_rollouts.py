"""Rollouts: what is written of a sample, and how it is found again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rpeg.runtime.errors import RunFolderFailure
from rpeg.runtime.logs.rollouts import describe, read_rollouts, write_rollouts
from rpeg.runtime.trajectories import Trajectories


@pytest.fixture
def run_dir(tmp_path: Path, completions: Callable[..., Trajectories]) -> Path:
    for step in (1, 2):
        y = completions(["a", "bcd", "ef", "é"], ["x", "y", "z", "w"], n=2)
        rewards = {"acc": torch.tensor([0.0, 1.0, 0.5, 0.25]) * step}
        write_rollouts(tmp_path / "rollouts", step, describe(y, rewards, step))
    return tmp_path


def test_a_rollout_says_everything_about_its_sample(run_dir: Path) -> None:
    assert read_rollouts(run_dir, step=2)[1] == {
        "step": 2,
        "ordinal": 0,
        "sample": 1,
        "prompt": "p0",
        "answer": "y",
        "completion": "bcd",
        "rewards": {"acc": 2.0},
        "finished": True,
        "tokens": 3,
        "trained": 3,
        "version": 0,
        "lag": 1,
    }


def test_tokens_too_old_to_train_are_counted_and_told(
    completions: Callable[..., Trajectories],
) -> None:
    y = completions(["abc", "de"], n=2)
    y.versions[0, :2], y.versions[0, 2], y.versions[1, :2] = 1, 4, 2
    y = replace(y, mask=y.versions >= 3)
    told = [json.loads(text) for _, _, text in describe(y, {}, 6)]
    found = [(r["tokens"], r["trained"], r["version"], r["lag"]) for r in told]
    assert found == [(3, 1, 1, 4), (2, 0, 2, 3)]


def test_lines_are_what_json_makes_of_each_sample(
    tmp_path: Path, completions: Callable[..., Trajectories]
) -> None:
    y = completions(['a "b"\\', "50 %s\n", "\u2028é", "}\n{"], [None, "1", "{}", ""], n=2)
    rewards = {"a": torch.tensor([0.1, float("nan"), -1.0, 1e-9]), "b%": torch.zeros(4)}
    for fields in (rewards, {}):
        write_rollouts(tmp_path, 1, describe(y, fields, 1))
    lines = (tmp_path / "step-000001.jsonl").read_text(encoding="utf-8").split("\n")
    assert lines.pop() == ""
    assert lines == [json.dumps(json.loads(line), ensure_ascii=False) for line in lines]
    read = [json.loads(line) for line in lines]
    assert [sample["completion"] for sample in read] == [*y.texts, *y.texts]
    assert [sample["answer"] for sample in read[:4]] == [row.answer for row in y.rows]
    assert [list(sample["rewards"]) for sample in read] == [["a", "b%"]] * 4 + [[]] * 4


def test_newest_step_best_first(run_dir: Path) -> None:
    best = read_rollouts(run_dir, sort_by="acc")[:2]
    assert [(r["step"], r["completion"]) for r in best] == [(2, "bcd"), (2, "ef")]
    worst = read_rollouts(run_dir, step=1, sort_by="acc", ascending=True)[:1]
    assert [(r["step"], r["completion"]) for r in worst] == [(1, "a")]


def test_what_is_not_there_is_named(run_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(RunFolderFailure, match="step 7: there are steps 1 to 2"):
        read_rollouts(run_dir, step=7)
    with pytest.raises(RunFolderFailure, match=r"no reward `len`.*there is acc"):
        read_rollouts(run_dir, sort_by="len")
    with pytest.raises(RunFolderFailure, match="holds no rollouts"):
        read_rollouts(tmp_path / "nowhere")
