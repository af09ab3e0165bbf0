"""Processes on cores: nothing hides their messages, which are counted one by one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from xdsl.context import Context

from rpeg.cost.collectives import (
    ALL_GATHER,
    ALL_REDUCE,
    BROADCAST,
    POINT_TO_POINT,
    REDUCE_SCATTER,
    Group,
    collective,
)
from rpeg.cost.hardware import Link
from rpeg.cost.platform import load_platform
from rpeg.cost.pricing import estimate
from rpeg.frontend import load
from rpeg.passes.layout_names import parse_layout
from rpeg.passes.rpeg_annotate_parallelism import RpegAnnotateParallelismPass
from rpeg.passes.rpeg_schedule import RpegSchedulePass
from rpeg.tools.calibrating.describe import cluster_file
from rpeg.tools.calibrating.measured import Exchange, Measured, Timed
from tests.unit.cost.figures import H100

RATE, HOP = 1e9, 3e-4
CORE = replace(
    H100,
    flops={"fp32": 5e10},
    link=Link(RATE, 4, HOP, reduces_in_switch=False, efficiency=1.0),
)
MIB = 2.0**20


@pytest.mark.parametrize(
    ("operation", "hops", "copies"),
    [
        (POINT_TO_POINT, 1, 1.0),
        (BROADCAST, 1, 1.0),
        (ALL_GATHER, 2, 1.0),
        (ALL_REDUCE, 4, 2.0),
        (REDUCE_SCATTER, 4, 2.0),
    ],
)
def test_a_core_sends_and_receives_in_turn(operation: str, hops: int, copies: float) -> None:
    two = Group.of(CORE, 2)
    assert float(collective(CORE, operation, 0.0, two)) == pytest.approx(hops * HOP)
    larger = float(collective(CORE, operation, MIB, two))
    assert larger == pytest.approx(hops * HOP + copies * MIB / RATE)
    assert float(collective(CORE, operation, MIB, Group.of(CORE, 1))) == 0.0


TEXT = """rpeg 0.1
pipeline p {
  model actor = policy("Qwen2.5-7B", optim=adamw(lr=1e-6), dtype=fp32)
  data train = prompts("gym:countdown")
  verifier correct = outcome("rule:exact_match")
  step i < 10 {
    q = batch(train, size=32)
    y, lp = generate(actor@i, q, n=8, max_tokens=64)
    r = score(correct, y)
    adv = group_advantage(r, baseline=mean, scale=std)
    pg = ppo_clip(y, adv, lp, clip_low=0.2, clip_high=0.2)
    actor@i+1 = update(actor@i, pg, agg=token_mean)
  }
  EXPECT
}
"""


def estimated(tmp_path: Path, processes: int, expect: str = "") -> dict[str, float]:
    """Seconds of each stage."""
    path = tmp_path / f"here-{processes}.toml"
    path.write_text(cluster_file("here", measured(processes), "2026-01-02"))
    module = load(TEXT.replace("EXPECT", expect), "test.rpeg").module
    assert module is not None
    layout = parse_layout(f"dp{processes}")
    for each in (RpegAnnotateParallelismPass(**layout), RpegSchedulePass()):  # type: ignore[arg-type]
        each.apply(Context(), module)
    found = estimate(module, load_platform(str(path)))
    return {stage.stage: stage.seconds for stage in found.stages}


def measured(processes: int) -> Measured:
    sent = [Exchange("all_reduce", size, 4 * HOP + 2 * size / RATE) for size in (4e3, 1e6, 1e7)]
    return Measured(
        device="a core",
        backend="gloo",
        processes=processes,
        gpus=0,
        cores=8,
        memory_bytes=8e12,
        reserved_bytes=0.2e9,
        host_bytes=16e12,
        matmuls=(Timed(1e9, 1e9 / 60e9),),
        attention=(Timed(1e9, 1 / 40),),
        heads=(Timed(512.0, 1e-3),),
        streams=(Timed(1e9, 0.1),),
        host_copies=(Timed(1e9, 0.2),),
        forwards=(Timed(1.0, 2e-3), Timed(128.0, 8e-3)),
        collectives=tuple(sent) if processes > 1 else (),
    )


def test_groups_without_advantages_are_left_out(tmp_path: Path) -> None:
    """An update computes half of the rows; of two replicas one has more than half to compute."""
    line = "expect adv = ratio(mean=0.5)"
    whole, half = estimated(tmp_path, 1), estimated(tmp_path, 1, line)
    assert half["actor"] == pytest.approx(whole["actor"] / 2, rel=0.05)
    assert {k: v for k, v in half.items() if k != "actor"} == pytest.approx(
        {k: v for k, v in whole.items() if k != "actor"}
    )
    both, some = estimated(tmp_path, 2), estimated(tmp_path, 2, line)
    # Of 16 groups each: 8 on average, with a deviation of 2; the larger of two has 0.589 of it.
    sent = 4 * HOP * 4 + 2 * 7.6e9 * 4 / RATE
    fuller = (some["actor"] - sent) / (both["actor"] - sent)
    assert fuller == pytest.approx((8 + 0.589 * 2) / 16, rel=0.02)


def test_books_are_kept_between_stages(tmp_path: Path) -> None:
    """Processes hand each other three objects per step, with two messages each."""
    one, two = estimated(tmp_path, 1), estimated(tmp_path, 2)
    assert one["q"] > 0.0
    assert two["q"] - one["q"] > 3 * 2 * 2 * HOP * 0.98


@pytest.mark.parametrize(("name", "fits"), [("adv", True), ("y", False), ("r", False)])
def test_what_has_a_share(name: str, fits: bool) -> None:
    text = TEXT.replace("EXPECT", f"expect {name} = ratio(mean=0.5)")
    told = [problem.message for problem in load(text, "test.rpeg").diagnostics]
    assert ("a group_advantage tells apart" in "".join(told)) is not fits
