"""Exported models: a Hugging Face folder, found again by `run:PIPELINE/MODEL`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from rpeg.runtime.errors import ModelFailure
from rpeg.runtime.run import Run
from tests.unit.runtime.publish.models import SHAPE


class Model:
    """Two tensors and a folder that they came from."""

    name = "actor"

    def __init__(self, hf_folder: Path) -> None:
        self.hf_folder = hf_folder
        self.scale = 1.0
        self.shape = SHAPE
        hf_folder.mkdir()
        (hf_folder / "config.json").write_text('{"model_type": "qwen3", "torch_dtype": "float32"}')
        (hf_folder / "tokenizer.json").write_text("{}")
        (hf_folder / "model.safetensors").write_text("old weights")

    def named_tensors(self) -> Iterator[tuple[str, Tensor]]:
        yield "a.weight", torch.full((2, 3), self.scale, dtype=torch.bfloat16)
        yield "b.bias", torch.zeros(8, dtype=torch.bfloat16)[:3]  # the rest is padding


@pytest.fixture
def model(run: Run) -> Model:
    return Model(run.root / "source")


def test_folder_holds_weights_configuration_and_tokenizer(run: Run, model: Model) -> None:
    run.export(model, to="out/actor")
    folder = run.root / "out" / "actor"
    weights = load_file(folder / "model.safetensors")
    assert weights["a.weight"].tolist() == [[1.0] * 3] * 2 and set(weights) == {
        "a.weight",
        "b.bias",
    }
    assert json.loads((folder / "config.json").read_text()) == {
        "model_type": "qwen3",
        "dtype": "bfloat16",
    }
    assert (folder / "tokenizer.json").exists()
    assert [path.name for path in folder.parent.iterdir()] == ["actor"]


def test_another_pipeline_finds_the_newest_export(
    run: Run, model: Model, launch: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    for scale in (1.0, 2.0):
        model.scale = scale
        run.export(model, to="out/actor")
    run.export(model, to="out/last")
    found = launch(pipeline="next").resolve("run:demo/actor")
    assert found == run.root / "out" / "last"
    monkeypatch.setenv("RPEG_RUN_DIR", "elsewhere/next")
    assert launch(pipeline="next").resolve("run:demo/actor") == found
    assert load_file(run.root / "out/actor/model.safetensors")["a.weight"][0, 0] == 2.0


def test_exports_that_are_not_there(run: Run, model: Model) -> None:
    with pytest.raises(ModelFailure, match="run the pipeline `nowhere` first"):
        run.resolve("run:nowhere/actor")
    run.export(model, to="out")
    with pytest.raises(ModelFailure, match="that run exported actor, not `critic`"):
        run.resolve("run:demo/critic")
    (run.root / "out").rename(run.root / "moved")
    with pytest.raises(ModelFailure, match="is gone; run the pipeline `demo` again"):
        run.resolve("run:demo/actor")


def test_nothing_but_a_model_is_replaced(run: Run, model: Model) -> None:
    (run.root / "thesis").mkdir()
    (run.root / "thesis" / "text").write_text("years of work")
    with pytest.raises(ModelFailure, match="is not a model folder"):
        run.export(model, to="thesis")
