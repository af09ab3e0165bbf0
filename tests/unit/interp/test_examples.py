"""Every example runs in the interpreter, at a small size; in double precision to the end."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rpeg.interp import Interpreter, World
from tests.unit.interp.small import EXAMPLES, STEPS, small, titles, write_world

CASES = [(path, title) for path in EXAMPLES for title in titles(path)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_world(tmp_path_factory.mktemp("small"))


@pytest.mark.parametrize(("path", "title"), CASES, ids=[f"{p.stem}:{t}" for p, t in CASES])
def test_it_runs(path: Path, title: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RPEG_ALLOW_PYTHON", "1")
    module, world = small(path, title), World(folder)
    recording = Interpreter(module, title, world, dtype=torch.float64).run()
    assert len(recording.steps) == STEPS
    assert all(step.grad_norms for step in recording.steps)
    computed = [*recording.weights.values(), *(step.logprobs for step in recording.steps)]
    assert {t.dtype for named in computed for t in named.values()} == {torch.float64}
