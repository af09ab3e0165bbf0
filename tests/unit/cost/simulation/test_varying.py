"""What varies of whole pipelines, against what the closed form expects of them."""

from __future__ import annotations

import pytest

from rpeg.cost.period.cycles import period
from rpeg.cost.platform import load_platform
from rpeg.cost.pricing import step_graph
from rpeg.cost.profiles.setting import Cores, Inputs, Setting
from rpeg.cost.simulation.result import StageTimes, summary
from rpeg.cost.simulation.run import Run
from rpeg.cost.simulation.simulate import simulated
from rpeg.passes.base import pipelines
from tests.unit.cost.placing import example, placed

PPO = example("ppo_7b_gh200")
SPREAD = "mean=512, cv=0.6"


def run_of(text: str, steps: int) -> Run:
    """The plan for one node."""
    pipeline = next(pipelines(placed(text, "four")))
    setting = Setting.of(pipeline, load_platform("alps-1"), Inputs())
    return simulated(step_graph(setting), setting, steps, 0)


def stages(run: Run) -> dict[str, StageTimes]:
    return {stage.stage: stage for stage in summary(run, 0, {}).stages}


def test_lengths_that_do_not_vary_leave_the_closed_form() -> None:
    """A batch that fits the slots takes as many steps as a response has tokens."""
    assert SPREAD in PPO
    run = run_of(PPO.replace(SPREAD, "mean=512, cv=0.0"), 3)
    assert run.period == pytest.approx(period(run.graph), rel=1e-3)
    for stage in stages(run).values():
        assert stage.deviation_s == pytest.approx(0.0, abs=1e-9)
        assert stage.mean_s == pytest.approx(stage.expected_s, rel=5e-3), stage.stage


def test_all_passes_of_a_step_see_the_same_tokens() -> None:
    run = run_of(PPO, 12)
    rows = {
        name: (run.end - run.start)[run.row(name)] for name in ("lp_ref", "v", "critic", "actor")
    }
    for row in rows.values():
        assert row / row.mean() == pytest.approx(rows["v"] / rows["v"].mean())
    assert rows["v"].std() > 0


def test_streamed_answers_of_a_heavy_tail_vary() -> None:
    """Without a cap of its own, an answer may take up to its verifier's timeout."""
    told = {"timeout=5s": "timeout=60s", "mean=20ms, cv=2.0": "mean=500ms, cv=3.0"}
    text = example("async_grpo_alps64")
    for before, after in told.items():
        assert before in text
        text = text.replace(before, after)
    pipeline = next(pipelines(placed(text, "alps64")))
    inputs = Inputs(checkers={"r": Cores("checkers", 1536)})
    setting = Setting.of(pipeline, load_platform("alps-64"), inputs)
    found = stages(simulated(step_graph(setting), setting, 6, 0))["r"]
    assert found.resource == "checkers"
    assert found.deviation_s > 0.02 * found.mean_s
