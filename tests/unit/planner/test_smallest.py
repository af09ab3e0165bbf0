"""The plan of a file that has none: the smallest tp x pp that fits."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import ModuleOp

from rpeg.cost.platform import load_platform
from rpeg.cost.profiles.footprint import footprint
from rpeg.cost.profiles.setting import Inputs, Setting
from rpeg.frontend import load
from rpeg.passes.base import pipelines
from rpeg.passes.rpeg_annotate_parallelism import ALL
from rpeg.planner.smallest import LONGEST, Smallest, place_smallest

SFT = """rpeg 0.1
pipeline sft {
  model actor = policy("hf:Qwen/Qwen2.5-7B", optim=adamw(lr=1e-6))
  data train = demos("data/train.jsonl")
  step i < 10 {
    b = batch(train, size=64)
    ce = cross_entropy(b)
    actor@i+1 = update(actor@i, ce, agg=token_mean)
  }
  expect train = lognormal(mean=700, cv=0.5, cap=4096)
}
"""


def smallest(cluster: str, model: str = "qwen2.5-7b") -> tuple[ModuleOp, Smallest]:
    module = load(SFT, "sft.rpeg").module
    assert module is not None
    inputs = Inputs(shapes={"actor": model})
    return module, place_smallest(module, load_platform(cluster), inputs)


def test_a_small_model_is_data_parallel_alone() -> None:
    _, found = smallest("h100-1", "qwen2.5-0.5b")
    assert (found.tp, found.pp, found.dp, found.fits) == (1, 1, 8, True)


@pytest.mark.parametrize("cluster", ["h100-1", "h200-1", "alps-4"])
def test_it_fits(cluster: str) -> None:
    module, found = smallest(cluster, "qwen2.5-14b")
    platform = load_platform(cluster)
    inputs = Inputs(shapes={"actor": "qwen2.5-14b"})
    setting = Setting.of(next(pipelines(module)), platform, inputs)
    assert found.fits
    assert found.tp * found.pp * found.dp == platform.cluster.gpus
    assert footprint(setting, ALL, LONGEST).peak <= platform.memory_bytes


def test_more_memory_needs_no_finer_split() -> None:
    sizes = [found.tp * found.pp for _, found in map(smallest, ("a100_40gb-1", "h100-1", "h200-1"))]
    assert sizes == sorted(sizes, reverse=True)


def test_heads_are_never_split_unevenly() -> None:
    _, found = smallest("h100-1", "qwen2.5-0.5b")
    assert 14 % found.tp == 0


def test_where_nothing_fits_the_note_says_so() -> None:
    _, found = smallest("h100-1", "qwen2.5-72b")
    assert not found.fits
    assert "no tp x pp fits" in found.note("h100-1")
