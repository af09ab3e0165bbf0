"""One folder with a small model and rows, and interpreters in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp

from rpeg.interp import Interpreter, World
from rpeg.interp.oracle import TrajectoryOracle
from tests.unit.interp.pipelines import write_model, write_rows


@pytest.fixture(scope="session")
def world_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    write_model(folder / "tiny")
    write_rows(folder / "rows.jsonl")
    return folder


@pytest.fixture
def interpret(world_folder: Path) -> Callable[..., Interpreter]:
    """Makes an interpreter of the pipeline `p` of a module."""

    def make(
        module: ModuleOp, *, seed: int = 0, oracle: TrajectoryOracle | None = None
    ) -> Interpreter:
        return Interpreter(module, "p", World(world_folder), seed, oracle)

    return make
