"""`rpeg simulate`: figures that add up, traces that are read back, errors that name the fix."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.tools.commands import Shell, message

EXAMPLES = Path(__file__).parents[3] / "examples"
PPO = str(EXAMPLES / "ppo_7b_gh200.rpeg")
TWO = str(EXAMPLES / "async_two_pools.rpeg")
ASYNC = str(EXAMPLES / "async_grpo_alps64.rpeg")


def figures(shell: Shell, *words: str) -> Any:
    done = shell("simulate", *words, "--json")
    assert done.code == 0, done.err
    return json.loads(done.out)


def test_one_pool_is_as_fast_as_its_stages(shell: Shell) -> None:
    found = figures(shell, PPO, "--plan", "four", "--steps", "4")
    assert found["period_s"] == pytest.approx(sum(s["mean_s"] for s in found["stages"]), rel=1e-6)
    assert found["gap"] == pytest.approx(found["of_tasks"] + found["of_waiting"])
    assert found["of_waiting"] == pytest.approx(0.0, abs=1e-6)
    assert found["resources"]["all"]["busy"] == pytest.approx(1.0)
    passes = [s for s in found["stages"] if s["stage"] in ("lp_ref", "v", "actor")]
    assert [s["mean_s"] / s["expected_s"] for s in passes] == pytest.approx([1.0] * 3, rel=0.05)


def test_one_step_tells_of_no_spread(shell: Shell) -> None:
    found = figures(shell, PPO, "--plan", "four", "--steps", "1")
    assert found["error_s"] is None
    assert {each["deviation_s"] for each in found["stages"]} == {None}
    said = shell("simulate", PPO, "--plan", "four", "--steps", "1").out
    assert ": 1 step after " in said and "±" not in said


def test_a_seed_draws_its_own_lengths(shell: Shell) -> None:
    words = (PPO, "--plan", "four", "--steps", "2", "--seed")
    assert figures(shell, *words, "7")["period_s"] != figures(shell, *words, "8")["period_s"]


def test_pools_of_their_own_run_ahead(shell: Shell) -> None:
    """The trainer waits for samples; these are at most as old as the window allows."""
    found = figures(shell, ASYNC, "--plan", "alps64", "--steps", "2")
    assert found["resources"]["trainer"]["idle"]["data"] > 0
    assert {each["bound"] for each in found["lags"].values()} == {2}
    assert {int(lag) for each in found["lags"].values() for lag in each["batches"]} <= {0, 1, 2}


def test_what_runs_ahead_of_its_turn_is_that_much_older(shell: Shell) -> None:
    found = figures(shell, ASYNC, "--plan", "one_node", "--steps", "2")
    assert found["lags"]["y"] == {"bound": 2, "batches": {"2": 2}}


def test_its_trace_is_one_that_diff_reads(shell: Shell) -> None:
    done = shell("simulate", PPO, "--plan", "four", "--steps", "2", "--trace", "t.json")
    assert done.code == 0
    assert "closed form" in done.out
    compared = shell("trace", "diff", "t.json", "t.json", "--json")
    assert {s["name"] for s in json.loads(compared.out)["stages"]} >= {"generate", "update_actor"}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((TWO, "--plan", "two"), "measure it with `rpeg calibrate"),
        ((PPO, "--plan", "five"), "there is no plan `five`"),
        ((PPO, "--plan", "four", "--trace", "/proc/t.json"), "/proc/t.json can't be written: "),
    ],
)
def test_errors_name_the_fix(shell: Shell, words: tuple[str, ...], text: str) -> None:
    done = shell("simulate", "--steps", "1", *words)
    assert done.code in (1, 2)
    assert text in message(done.err)


def test_what_rounds_to_nothing_has_no_side(shell: Shell) -> None:
    """One pool makes nobody wait, but for the rounding of sums."""
    done = shell("simulate", PPO, "--plan", "four", "--steps", "3")
    assert "+0.0%    others wait for what varies" in done.out
    assert "-0.0%" not in done.out


def test_steps_have_a_limit(shell: Shell) -> None:
    done = shell("simulate", PPO, "--plan", "four", "--steps", "1000000000")
    assert done.code == 2
    assert "expected at most 10000 steps, not 1000000000" in done.err
