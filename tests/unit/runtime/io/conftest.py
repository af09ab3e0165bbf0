"""Runs of a world of one in a temporary folder, and trajectories made by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rpeg.runtime.run import Run, start
from rpeg.runtime.trajectories import Row, Trajectories


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Run]:
    """Starts a run under the test's folder, as the launcher would."""
    monkeypatch.chdir(tmp_path)
    for name in ("RPEG_RUN_DIR", "RPEG_SEED", "RPEG_ROOT", "RPEG_ALLOW_PYTHON"):
        monkeypatch.delenv(name, raising=False)

    def start_run(steps: int = 4, source: str = "0" * 64, pipeline: str = "demo") -> Run:
        return start(pipeline=pipeline, steps=steps, processes=1, source_sha256=source)

    return start_run


@pytest.fixture
def run(launch: Callable[..., Run]) -> Run:
    return launch()


@pytest.fixture
def completions() -> Callable[..., Trajectories]:
    """Makes trajectories of these completions, one token a character."""
    return make_completions


def make_completions(
    texts: list[str], answers: list[str | None] | None = None, *, finished: bool = True, n: int = 1
) -> Trajectories:
    answers = answers or [None] * len(texts)
    width = max(1, *map(len, texts))
    lengths = torch.tensor([len(text) for text in texts])
    mask = torch.arange(width)[None, :] < lengths[:, None]
    return Trajectories(
        rows=tuple(Row(f"p{k // n}", answers[k]) for k in range(len(texts))),
        prompt_ids=((1,),) * len(texts),
        tokens=mask.long(),
        mask=mask,
        versions=torch.where(mask, 0, -1).int(),
        finished=torch.full((len(texts),), finished),
        ordinals=torch.arange(len(texts)) // n,
        samples=torch.arange(len(texts)) % n,
        texts=tuple(texts),
        n=n,
        temperature=1.0,
    )
