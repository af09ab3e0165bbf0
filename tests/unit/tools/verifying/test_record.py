"""What verification records, and the models that it makes for it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from rpeg.interp import Place, World
from rpeg.runtime.errors import ModelFailure
from rpeg.runtime.models.model_source import ModelSource
from rpeg.tools.console import Source
from rpeg.tools.verifying.models import SPREAD, ModelFolders
from rpeg.tools.verifying.record import Rewarding, record
from tests.unit.interp.pipelines import grpo, write_model, write_rows


@dataclass
class Verifier:
    rewards: list[float]
    name: str = "right"

    def score(self, y: Any) -> Tensor:
        return torch.tensor(self.rewards)


def score(rewards: list[float], step: int = 0, seed: int = 0) -> tuple[Tensor, dict[str, str]]:
    oracle = Rewarding(seed)
    y: Any = SimpleNamespace(n=2)
    verifier: Any = Verifier(rewards)
    return oracle.score(Place(step, "acc"), verifier, y), oracle.notes


def test_rewards_that_tell_samples_apart_stay() -> None:
    rewards, notes = score([1.0, 1.0, 0.0, 1.0])
    assert rewards.tolist() == [1.0, 1.0, 0.0, 1.0]
    assert notes == {}


def test_others_are_drawn() -> None:
    rewards, notes = score([1.0, 1.0, 0.0, 0.0])
    assert len(set(rewards.tolist())) == 4
    assert "`right` tells no samples apart" in notes["acc"]
    assert torch.equal(rewards, score([0.0] * 4)[0])
    assert not torch.equal(rewards, score([0.0] * 4, step=1)[0])
    assert not torch.equal(rewards, score([0.0] * 4, seed=1)[0])


def test_recordings_are_in_double_precision(tmp_path: Path) -> None:
    """So that what a layout is away from them is its own rounding."""
    write_model(tmp_path / "tiny")
    write_rows(tmp_path / "rows.jsonl")
    recording = record(grpo(), "p", World(tmp_path), seed=0).recording
    assert {t.dtype for t in recording.weights["actor"].values()} == {torch.float64}
    assert recording.steps[-1].logprobs["lp_old"].dtype == torch.float64


@pytest.fixture
def folders(tmp_path: Path) -> ModelFolders:
    write_model(tmp_path / "tiny")
    return ModelFolders(Source(tmp_path / "p.rpeg", ""), tmp_path / "made", seed=0)


def test_sources_become_folders(folders: ModelFolders, tmp_path: Path) -> None:
    assert folders.of_source("tiny") == tmp_path / "tiny"
    assert folders.of_source("models/tiny-qwen2").is_dir()  # shipped
    with pytest.raises(ModelFailure, match="it has no config"):
        folders.of_source("nowhere")


def test_a_perturbed_model_differs_a_little_everywhere(folders: ModelFolders) -> None:
    made = folders.perturbed(folders.of_source("tiny"))
    assert made == folders.perturbed(folders.of_source("tiny"))  # made once
    ours, theirs = (ModelSource(f, seed=0) for f in (folders.of_source("tiny"), made))
    assert theirs.has_weights
    assert theirs.tokenizer.encode("12=") == ours.tokenizer.encode("12=")
    for name, _ in ours.shape.tensors():
        gap, size = (theirs.read(name) - ours.read(name)), ours.read(name).square().mean().sqrt()
        assert 0.2 * SPREAD < float(gap.square().mean().sqrt() / size) < 2 * SPREAD, name
