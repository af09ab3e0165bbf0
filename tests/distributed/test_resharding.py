"""Checkpoints go on under other layouts: Adam's state arrives to the bit, training within rounding;
under the layout that wrote them, to the bit.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load

from rpeg import runtime as rt
from rpeg.runtime.errors import CheckpointFailure
from rpeg.runtime.models.model_source import ModelSource
from rpeg.runtime.state.checkpoint import load_weights, model_folder, saved_models, verified
from tests.distributed import resharding_program as program
from tests.unit.interp.pipelines import write_model

PROGRAM = Path(__file__).with_name("resharding_program.py")
ROOT = Path(__file__).parents[2]
TINY = {
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "tie_word_embeddings": False,
}
TOLERANCE = {"fp32": 1e-6, "bf16": 1e-3}
"""Root mean square of the difference of weights after all steps of a chain."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rt.Run]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RPEG_RUN_DIR", str(tmp_path_factory.mktemp("run")))
        yield rt.start(pipeline="one", steps=1, processes=1, source_sha256="0")


@pytest.fixture(scope="session")
def launched(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], Path]:
    """What the program wrote in two processes: its slow cases, or the others. Each once."""

    @functools.cache
    def launch(slow: bool) -> Path:
        folder = tmp_path_factory.mktemp("chains")
        tied = {"tie_word_embeddings": True}
        write_model(folder / "qwen2", **TINY | tied | {"model_type": "qwen2"})
        write_model(folder / "qwen3", **TINY | tied)
        write_model(folder / "llama", **TINY | {"model_type": "llama"})
        launcher = ["-m", "rpeg.runtime.launch", "--standalone", "--nproc-per-node=2"]
        names = [name for name in program.CASES if (name in program.SLOW) == slow]
        subprocess.run(
            [sys.executable, *launcher, str(PROGRAM), str(folder), *names],
            env=os.environ | {"PYTHONPATH": str(ROOT), "RPEG_RUN_DIR": str(folder / "run")},
            check=True,
            timeout=500,
        )
        return folder

    return launch


def cases(names: Iterable[str]) -> list[Any]:
    """Parameters of a test."""
    slow = pytest.mark.slow
    return [pytest.param(n, marks=slow) if n in program.SLOW else n for n in names]


@pytest.fixture
def folder(name: str, launched: Callable[[bool], Path]) -> Path:
    """Where the program wrote the case `name`."""
    return launched(name in program.SLOW)


def stored(checkpoint: Path) -> dict[str, Any]:
    """Everything that a checkpoint holds of its model, by key."""
    reader = FileSystemReader(checkpoint / "actor")
    kept: Any = reader.read_metadata().state_dict_metadata
    tensors = {k: torch.empty(v.size, dtype=v.properties.dtype) for k, v in kept.items()}
    load(tensors, storage_reader=reader, no_dist=True)
    return tensors | torch.load(checkpoint / "actor" / "common.pt")


def differences(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """Keys whose values are not the same to the bit."""
    assert a.keys() == b.keys()
    return [k for k in a if not torch.equal(torch.as_tensor(a[k]), torch.as_tensor(b[k]))]


def distance(a: dict[str, Any], b: dict[str, Any], kind: str) -> float:
    gaps = [(a[k].float() - b[k].float()).flatten() for k in a if k.startswith(f"{kind}.")]
    return float(torch.cat(gaps).square().mean().sqrt())


@pytest.mark.parametrize("name", cases(program.CHAINS))
def test_a_chain_of_layouts(name: str, folder: Path, run: rt.Run) -> None:
    chain = program.CHAINS[name]
    links = [folder / name / f"{k}-{layout}" for k, layout in enumerate(chain.layouts)]
    last = folder / name / "one"
    program.link(run, folder, chain, "dp1", links[-1], last)
    for before, after in zip(links, [*links[1:], last], strict=False):
        wrote, loaded = stored(before / "step-000002"), stored(after / "step-000001")
        assert wrote["adam_steps"] > 0 and distance(wrote, wrote, "exp_avg") == 0
        assert differences(wrote, loaded) == [], after.name
    steps = len(links) + 1
    program.whole(run, folder, chain, "dp1", folder / name / "whole", links=steps)
    end, whole = (stored(p / "step-000002") for p in (last, folder / name / "whole"))
    assert end["adam_steps"] == whole["adam_steps"] == program.STEPS_A_LINK * steps
    figures = {k: distance(end, whole, k) for k in ("weights", "exp_avg", "exp_avg_sq")}
    print(name, figures)
    assert all(gap <= TOLERANCE[chain.dtype] for gap in figures.values()), figures
    start = stored(links[0] / "step-000001")
    assert distance(start, end, "weights") > 1e-3  # it did train


@pytest.mark.parametrize("name", cases(program.UNBROKEN))
def test_the_same_layout_goes_on_to_the_bit(name: str, folder: Path) -> None:
    places = (folder / name, folder / name / "resumed")
    whole, resumed = (stored(place / "step-000002") for place in places)
    assert differences(whole, resumed) == []


@pytest.mark.parametrize("name", cases(["masters"]))
def test_a_checkpoint_says_what_is_in_it(name: str, folder: Path) -> None:
    checkpoint = folder / name / "1-dp2zero1" / "step-000002"
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    layout = manifest["layouts"]["actor"]
    assert (manifest["processes"], layout["dp"], layout["zero"]) == (2, 2, 1)
    assert verified(checkpoint) == []
    assert saved_models(checkpoint) == ["actor"]
    kinds = {key.partition(".")[0] for key in stored(checkpoint)}
    kinds -= {"version", "updates", "adam_steps"}
    assert kinds == {"weights", "masters", "exp_avg", "exp_avg_sq"}


@pytest.mark.parametrize("name", cases(program.CHAINS))
def test_weights_come_out_whole_in_one_process(name: str, folder: Path) -> None:
    chain = program.CHAINS[name]
    checkpoint = folder / name / f"0-{chain.layouts[0]}" / "step-000002"
    weights: dict[str, Tensor] = dict(load_weights(checkpoint, "actor"))
    heads = {"critic": chain.role == "value", "two_heads": chain.role == "actor_critic"}
    source = ModelSource(model_folder(checkpoint, "actor"), 0, **heads)
    assert {n: tuple(w.shape) for n, w in weights.items()} == dict(source.shape.tensors())
    expected = {f"weights.{n}": w for n, w in weights.items()}
    kept = {k: v for k, v in stored(checkpoint).items() if k.startswith("weights.")}
    assert differences(kept, expected) == []
    with pytest.raises(CheckpointFailure, match=r"no trained model `critic` \(it holds: actor\)"):
        list(load_weights(checkpoint, "critic"))
