"""Rollouts: what is written of a sample, and how it is found again."""

from __future__ import annotations

from collections.abc import Callable
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
        write_rollouts(tmp_path / "rollouts", describe(y, rewards, step))
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
        "version": 0,
        "lag": 1,
    }


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
