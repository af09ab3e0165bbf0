"""The plan of a file that has none: the smallest tp x pp that fits."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import ModuleOp

from rpeg.cost.platform import load_platform
from rpeg.cost.profiles.footprint import footprint
from rpeg.cost.profiles.setting import Inputs, Setting
from rpeg.frontend import load
from rpeg.ir.layout import width_of
from rpeg.ir.ops.movement import RanksOp, clause_of
from rpeg.ir.ops.sampling import GenerateOp
from rpeg.passes.base import pipelines
from rpeg.passes.rpeg_annotate_parallelism import ALL
from rpeg.planner.smallest import LONGEST, Smallest, place_smallest
from tests.unit.passes.pipelines import grpo, parse

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


def placed(cluster: str, *changes: tuple[str, str]) -> tuple[ModuleOp, Smallest]:
    """Of GRPO with a model of 7B, whose batches are of 64 prompts."""
    module = parse(grpo(("size=4", "size=64"), *changes))
    return module, place_smallest(
        module, load_platform(cluster), Inputs(shapes={"actor": "qwen2.5-7b"})
    )


def test_updates_recompute_only_where_that_makes_them_fit() -> None:
    roomy, tight = (smallest(c, "qwen2.5-14b")[1] for c in ("h100-1", "a100_40gb-1"))
    assert (roomy.recompute, tight.recompute) == ("none", "full")
    assert "recompute=full" in tight.note("a100_40gb-1")


@pytest.mark.parametrize(("cluster", "wide"), [("h200-1", 1), ("a100_40gb-1", 4)])
def test_engines_are_no_wider_than_they_need_to_be(cluster: str, wide: int) -> None:
    module, found = placed(cluster)
    (y,) = (op for op in module.walk() if isinstance(op, GenerateOp))
    layout = clause_of(y, "par")
    assert layout is not None
    assert tuple(width_of(layout, axis) for axis in ("tp", "pp", "dp")) == (wide, 1, 8 // wide)
    assert f"engines tp={wide} dp={8 // wide}" in found.note(cluster)


def test_batches_divide_over_the_replicas() -> None:
    module, found = placed("h100-4", ("size=64", "size=6"))
    (ranks,) = (op for op in module.walk() if isinstance(op, RanksOp))
    assert 6 % found.dp == 0
    assert found.processes + found.idle == 32
    assert len(ranks.ranks) == found.processes
    assert f"{found.idle} do nothing" in found.note("h100-4")


def test_where_nothing_fits_the_note_says_so() -> None:
    _, found = smallest("h100-1", "qwen2.5-72b")
    assert not found.fits
    assert "no tp x pp fits" in found.note("h100-1")


def test_twice_as_many_processes_a_replica_rather_than_recomputing() -> None:
    """On 40 GB tp=2 holds 7B with recompute=full; the cost model has tp=4 without take 3/4 of its
    time.
    """
    _, found = smallest("a100_40gb-1", "qwen2.5-7b")
    assert (found.tp, found.pp, found.recompute) == (4, 1, "none")


def test_wide_engines_are_explained() -> None:
    _, found = placed("a100_40gb-1")
    assert (found.engine, found.cramped) == (4, True)
    assert "tp=4 dp=2, as narrower ones lack room for sequences" in found.note("a100_40gb-1")
    _, found = placed("b200-1")
    assert (found.engine, found.cramped) == (1, False)
    assert "narrower" not in found.note("b200-1")
