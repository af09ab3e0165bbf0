"""Every algorithm's program computes what the interpreter does, on one process and on several.

`rpeg verify` gives every policy a KL term to other weights, and every update two minibatches. It
compares the log-probs and values of each step, the gradient norms of each trained model, and all
weights in the end.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rpeg.tools.console import read
from rpeg.tools.verifying.judge import BOUND
from rpeg.tools.verifying.run import Request, verify
from tests.distributed.algorithms import ALGORITHMS
from tests.distributed.verifying import planting, write
from tests.unit.interp.pipelines import FAMILIES, write_model


def held(folder: Path, name: str, family: str, *layouts: str, steps: int = 3) -> None:
    file = write(folder, ALGORITHMS[name], family)
    if "teacher" in ALGORITHMS[name]:
        wide = {"num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 24}
        write_model(folder / "teacher", **FAMILIES[family], **wide, initializer_range=0.2)
    report = verify(Request(read(str(file)), layouts=layouts, steps=steps), print)
    assert report.ok, report
    for verdict in report.verdicts:
        assert verdict.parity is not None and verdict.parity.within(BOUND)
        assert verdict.parity.logprob > 0.0, "two implementations round differently"


def test_ppo_trains_two_models(tmp_path: Path) -> None:
    held(tmp_path / "p", "ppo", "qwen3", "dp1", steps=2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_algorithm_is_the_interpreter(tmp_path: Path, name: str) -> None:
    held(tmp_path / "p", name, "llama" if name == "distillation" else "qwen3", "dp2")


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["tp2sp", "pp2vpp2"])
@pytest.mark.parametrize("name", ["dpo", "reward_model"])
def test_pairs_split(tmp_path: Path, name: str, layout: str) -> None:
    held(tmp_path / "p", name, "qwen3", layout)


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["tp2sp", "pp2"])
def test_critics_split(tmp_path: Path, layout: str) -> None:
    held(tmp_path / "p", "ppo", "qwen2", layout)


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["dp2+actor=tp2", "tp2sp+critic=dp2zero1", "pp2+ref=dp2"])
def test_models_of_unlike_widths(tmp_path: Path, layout: str) -> None:
    held(tmp_path / "p", "ppo", "qwen3", layout, steps=2)


@pytest.mark.slow
def test_pairs_cross_to_another_width(tmp_path: Path) -> None:
    held(tmp_path / "p", "dpo", "qwen3", "dp2+actor=tp2", steps=2)


SWAPPED = """
from rpeg.runtime.crossing import Crossing
back = Crossing.back
Crossing.back = lambda self, field: back(self, field).flip(0)
"""
"""What a model says of its rows comes back to others."""


@pytest.mark.slow
def test_rows_that_come_back_in_another_order_are_caught(tmp_path: Path) -> None:
    file = write(tmp_path / "p", ALGORITHMS["ppo"], "qwen3")
    request = Request(read(str(file)), layouts=["dp2+actor=tp2"], steps=2)
    alone, crossed = verify(request, print, planting(SWAPPED)).verdicts
    assert alone.ok, "one width has nothing to cross"
    assert "log-probs" in crossed.problem and "differ first in step 1" in crossed.problem


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["tp2sp", "pp2vpp2", "dp2zero1"])
def test_one_trunk_splits(tmp_path: Path, layout: str) -> None:
    held(tmp_path / "p", "ppo_shared", "llama", layout, steps=2)
