"""Files without a plan for the cluster that is asked about."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rpeg.tools.rpeg import main

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_the_smallest_layout_is_priced_and_told(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(EXAMPLES / "ppo_critic.rpeg")
    assert main(["explain", file, "--cluster", "alps-1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["plan"], found["gpus"]) == ("smallest", 4)
    assert any("tp=4 pp=1 dp=1" in note for note in found["notes"])
    gpu = [held for held in found["memory"] if held["kind"] == "gpu"]
    assert all(held["peak_bytes"] <= held["capacity_bytes"] for held in gpu)


@pytest.mark.parametrize(("cluster", "taken"), [("alps", "alps-1"), ("v100", "v100-2")])
def test_of_a_cluster_without_a_size_the_smallest_that_fits(
    cluster: str, taken: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(EXAMPLES / "ppo_critic.rpeg")
    assert main(["explain", file, "--cluster", cluster, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cluster"] == taken
    told = f'"{cluster}" has no size: {taken} is the smallest that fits'
    assert any(note.startswith(told) for note in found["notes"])


def test_a_plan_needs_a_cluster_with_a_size(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(EXAMPLES / "ppo_7b_gh200.rpeg")
    assert main(["explain", file, "--cluster", "h100", "--plan", "four"]) == 2
    message = capsys.readouterr().err
    assert "`four` needs a cluster with a size: write --cluster h100-N" in message


def test_no_size_fits(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(EXAMPLES / "ppo_critic.rpeg")
    named = [f"--arch={model}=llama-3.1-405b" for model in ("actor", "critic", "ref")]
    assert main(["explain", file, "--cluster", "v100", *named]) == 2
    assert "no size of v100 up to v100-" in capsys.readouterr().err


def test_the_first_lines_tell_that_nothing_fits(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(EXAMPLES / "dapo.rpeg")
    assert main(["explain", file, "--cluster", "v100-1"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("dapo: plan smallest on v100-1, 8 GPUs\ndoes not fit: ")
    assert "no tp x pp fits" in out


def test_a_model_of_unknown_shape_is_an_error_with_its_place(
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = str(EXAMPLES / "async_two_pools.rpeg")
    assert main(["explain", file, "--cluster", "h100-1"]) == 1
    message = capsys.readouterr().err
    assert "async_two_pools.rpeg:10:9: error: nothing tells the shape of `actor`" in message
    assert "--arch actor=" in message


def test_a_cluster_without_speeds_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(EXAMPLES / "dpo.rpeg")
    assert main(["explain", file, "--cluster", "cpu"]) == 1
    assert "rpeg calibrate -o here.toml" in capsys.readouterr().err


def test_a_tuned_model_has_the_shape_of_its_base(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(EXAMPLES / "multi_turn_tools.rpeg")
    assert main(["explain", file, "--cluster", "h100-4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["gpus"] == 32


@pytest.mark.parametrize(
    "name",
    [
        "dapo",
        "grpo_generative_reward",
        "multi_turn_tools",
        "on_policy_distillation",
        "ppo_shared_trunk",
        "reinforce_pp",
        "reward_model",
    ],
)
def test_every_kind_of_stage_has_a_price(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Collects, judges, tools, teachers, shared trunks, and pairs."""
    file = str(EXAMPLES / f"{name}.rpeg")
    named = ["--arch", "rm=qwen3-0.6b"] if name == "reward_model" else []
    assert main(["explain", file, "--cluster", "h100-8", "--json", *named]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["period_s"] > 0
    assert all(stage["seconds"] > 0 for stage in found["stages"])
    updates = [stage for stage in found["stages"] if stage["mfu"] > 0.02]
    assert updates, "an update keeps GPUs busy"


def test_a_judges_answers_are_assumed_aloud(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(EXAMPLES / "grpo_generative_reward.rpeg")
    assert main(["explain", file, "--cluster", "h100-1"]) == 0
    said = "`judge`: answers of 32 tokens on average, a quarter of what is allowed"
    assert said in capsys.readouterr().out
