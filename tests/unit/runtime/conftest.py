"""A run of one process in a temporary folder, and trajectories to train on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from rpeg.runtime.groups import Groups
from rpeg.runtime.layout import Layout
from rpeg.runtime.run import Run, start
from rpeg.runtime.trajectories import Row, Trajectories

ROOT = Path(__file__).parents[3]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.setenv("RPEG_RUN_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("RPEG_ROOT", str(ROOT))
    yield start(pipeline="test", steps=8, processes=1, source_sha256="0")


@pytest.fixture
def groups() -> Groups:
    return Groups.make(Layout())


@pytest.fixture
def trajectories() -> Callable[[int], Trajectories]:
    return make_trajectories


def make_trajectories(samples: int, vocab: int = 23, width: int = 6, n: int = 4) -> Trajectories:
    """Random prompts of 1 to 9 tokens with random completions of 1 to `width`, n of each prompt."""
    generator = torch.Generator().manual_seed(0)

    def draw(low: int, high: int, *size: int) -> torch.Tensor:
        return torch.randint(low, high, size, generator=generator)

    lengths = draw(1, width + 1, samples)
    mask = torch.arange(width) < lengths.unsqueeze(1)
    prompts = [tuple(draw(2, vocab, int(draw(1, 10, 1))).tolist()) for _ in range(samples // n)]
    return Trajectories(
        rows=(Row("1"),) * samples,
        prompt_ids=tuple(prompt for prompt in prompts for _ in range(n)),
        tokens=draw(1, vocab, samples, width) * mask,
        mask=mask,
        versions=mask.int() - 1,
        finished=lengths < width,
        ordinals=torch.arange(samples) // n,
        samples=torch.arange(samples) % n,
        texts=("",) * samples,
        n=n,
        temperature=0.7,
    )
