"""`rpeg verify --level L1`: a layout's plan is interpreted on the recorded trajectories."""

from __future__ import annotations

from pathlib import Path

import pytest

from rpeg.interp import World
from rpeg.interp.handlers import updates
from rpeg.runtime.losses import Totals
from rpeg.tools.verifying.judge import judge
from rpeg.tools.verifying.placing import Placing
from rpeg.tools.verifying.record import Recorded, record
from tests.unit.interp.pipelines import grpo, write_model, write_rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("placing")
    write_model(folder / "tiny", num_key_value_heads=2, num_hidden_layers=2)
    write_rows(folder / "rows.jsonl")
    return folder


@pytest.fixture(scope="module")
def recorded(folder: Path) -> Recorded:
    return record(grpo(), "p", World(folder), seed=0)


def test_layouts_are_the_same(recorded: Recorded, folder: Path) -> None:
    placing = Placing(grpo(), "p", folder, 0, recorded.recording)
    assert judge("dp2tp2", recorded, placing.run("dp2tp2")).problem == ""


def test_a_wrong_normaliser_is_found(
    recorded: Recorded, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def doubled(tokens: int, sequences: int) -> Totals:
        return Totals(2 * tokens, sequences)

    monkeypatch.setattr(updates, "Totals", doubled)
    placing = Placing(grpo(), "p", folder, 0, recorded.recording)
    assert "the gradient's norm differs first" in judge("dp2", recorded, placing.run("dp2")).problem
