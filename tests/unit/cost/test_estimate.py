"""Estimates of examples: parts add up, and more hardware or less work never costs more."""

from __future__ import annotations

import json
import math

import pytest

from rpeg.cost.estimate import Estimate
from rpeg.cost.platform import load_platform
from rpeg.cost.profiles.busiest import busiest
from rpeg.cost.profiles.setting import Inputs, Setting
from rpeg.passes.base import pipelines
from tests.unit.cost.placing import example, placed, priced

PLANS = [
    ("async_grpo_alps64", "alps64", "alps-64"),
    ("async_grpo_alps64", "one_node", "h100-1"),
    ("ppo_critic", "node", "h200-1"),
    ("gspo_moe", "alps8", "alps-8"),
]


@pytest.fixture(scope="module")
def estimates() -> dict[str, Estimate]:
    return {plan: priced(example(name), plan, cluster) for name, plan, cluster in PLANS}


def seconds(estimate: Estimate, stage: str) -> float:
    return next(one.seconds for one in estimate.stages if one.stage == stage)


def test_causes_add_up_to_the_stage(estimates: dict[str, Estimate]) -> None:
    for stage in (stage for each in estimates.values() for stage in each.stages):
        assert min(stage.breakdown.values()) >= -1e-9 * stage.seconds, stage
        assert math.isclose(sum(stage.breakdown.values()), stage.seconds, rel_tol=1e-9), stage


def test_no_stage_is_faster_than_the_peaks(estimates: dict[str, Estimate]) -> None:
    for stage in (stage for each in estimates.values() for stage in each.stages):
        assert 0.0 <= stage.mfu < 0.8, stage
        assert 0.0 <= stage.mbu < 1.0, stage


def test_terms_add_up_to_the_peak_and_the_timeline_reaches_it(
    estimates: dict[str, Estimate],
) -> None:
    for held in (held for each in estimates.values() for held in each.memory):
        assert math.isclose(sum(held.terms.values()), held.peak_bytes, rel_tol=1e-9)
        assert [t for t, _ in held.timeline] == sorted(t for t, _ in held.timeline)
        assert math.isclose(max(size for _, size in held.timeline), held.peak_bytes, rel_tol=1e-9)


def test_longer_responses_need_no_less_memory(estimates: dict[str, Estimate]) -> None:
    for each in estimates.values():
        for pool in (pool for pool in each.pools if pool.gpus):
            gpu = [m for m in each.memory if m.pool == pool.pool and m.kind == "gpu"]
            peaks = [held.peak_bytes for held in gpu]
            assert [held.quantile for held in gpu] == ["p50", "p95", "p99", "cap"]
            assert peaks == sorted(peaks)


def test_period_is_within_its_bounds(estimates: dict[str, Estimate]) -> None:
    for each in estimates.values():
        bounds = each.bounds
        assert each.period_s >= max(bounds.load, bounds.cycle, bounds.head_body_tail) * (1 - 1e-9)
        assert each.latency_s > 0
        assert all(0.0 <= pool.busy_share <= 1.0 + 1e-9 for pool in each.pools)


def test_a_window_lets_pools_overlap(estimates: dict[str, Estimate]) -> None:
    each = estimates["alps64"]
    assert each.period_s < each.latency_s


def test_json_has_the_same_figures(estimates: dict[str, Estimate]) -> None:
    each = estimates["alps64"]
    table = json.loads(json.dumps(each.to_json()))
    assert table["stages"][0]["seconds"] == each.stages[0].seconds
    assert table["period_s"] == each.period_s


def test_what_no_line_tells_is_noted(estimates: dict[str, Estimate]) -> None:
    assert any("expect correct" in note for note in estimates["alps8"].notes)
    assert not any("expect y" in note for note in estimates["alps8"].notes)


def test_a_pass_three_times_as_long_as_its_forward_pass(estimates: dict[str, Estimate]) -> None:
    """An update is forward and backward, once over the rows; a log-prob is forward alone."""
    each = estimates["alps64"]
    flops = {stage.stage: stage.flops for stage in each.stages}
    assert math.isclose(flops["actor"], 3 * flops["prox"], rel_tol=1e-9)
    assert 2.0 < seconds(each, "actor") / seconds(each, "prox") < 5.0


def test_more_samples_take_longer() -> None:
    text = example("async_grpo_alps64")
    twice = priced(text.replace("param n = 16", "param n = 32"), "alps64", "alps-64")
    once = priced(text, "alps64", "alps-64")
    for stage in ("y", "prox", "actor"):
        assert seconds(twice, stage) > seconds(once, stage)


@pytest.mark.parametrize(("kept", "ranks"), [("full", (16, 31)), ("none", (0, 15))])
def test_the_busiest_gpus_are_those_of_one_end_of_a_pipeline(
    kept: str, ranks: tuple[int, int]
) -> None:
    """The last has the logits; the first waits for most of its backward passes."""
    text = example("gspo_moe").replace("recompute=full", f"recompute={kept}")
    pipeline = next(pipelines(placed(text, "alps8")))
    setting = Setting.of(pipeline, load_platform("alps-8"), Inputs())
    assert busiest(setting, "all", "actor") == ranks
    assert busiest(setting, "all", "y") == (0, 31)


def test_offload_takes_time_and_frees_memory() -> None:
    text = example("async_grpo_alps64")
    held = priced(text.replace("resid(params=lazy, opt=host),", ""), "one_node", "h100-1")
    away = priced(text, "one_node", "h100-1")
    assert seconds(away, "actor") > seconds(held, "actor")

    def peak(each: Estimate, kind: str) -> float:
        return max(held.peak_bytes for held in each.memory if held.kind == kind)

    assert peak(away, "gpu") < peak(held, "gpu")
    assert peak(away, "host") > peak(held, "host")


def test_a_rule_that_compares_texts_takes_next_to_no_time() -> None:
    text = example("ppo_critic")
    compared = text.replace('outcome("gym:countdown")', 'outcome("rule:exact_match")')
    slow, quick = (priced(each, "node", "h200-1") for each in (text, compared))
    assert seconds(quick, "r") < seconds(slow, "r") / 10
    assert any("taken as 0.1 ms" in note for note in quick.notes)


def test_less_memory_for_the_cache_makes_sampling_slower() -> None:
    text = example("async_grpo_alps64")
    wide = text.replace("max_seqs=256", "max_seqs=4096").replace("param n = 16", "param n = 512")
    narrow = wide.replace(
        "dp=160), engine(name=vllm, memory=0.9", "dp=160), engine(name=vllm, memory=0.3"
    )
    assert narrow != wide
    slow, quick = (priced(each, "alps64", "alps-64") for each in (narrow, wide))
    assert seconds(slow, "y") > seconds(quick, "y")


def test_answers_of_tools_between_turns_count() -> None:
    """Six turns wait five times, for the slower of two tools; a seventh once more."""
    text = example("multi_turn_tools")
    text = (
        text.rstrip()[:-1]
        + '  plan here on "h100-1" {\n    pool all = nodes(0..0)\n'
        + (
            "    y on all, par(tp=1, dp=8), engine(name=vllm)\n    style on all, par(tp=1, dp=8)\n"
            "    right on all\n    lp_old on all, par(tp=8, dp=1)\n"
            "    actor on all, par(tp=8, dp=1), publish(all, mode=reshard)\n"
            "    dev on all, par(tp=1, dp=8), engine(name=vllm)\n  }\n}\n"
        )
    )
    six, seven = (
        priced(text.replace("turns = 6", f"turns = {turns}"), "here", "h100-1").stages[0]
        for turns in (6, 7)
    )
    assert six.stage == "y"
    waits = six.breakdown["tools"]
    assert waits == pytest.approx(5 * 0.4, rel=0.01)
    assert seven.breakdown["tools"] == pytest.approx(6 * 0.4, rel=0.01)
