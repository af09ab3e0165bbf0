"""Verdicts name the first difference and what kind of fault makes such a one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from rpeg.interp import Greedy
from rpeg.runtime.recordings.recording import Recording, StepRecord
from rpeg.tools.verifying.judge import GreedyTally, Verdict, judge
from rpeg.tools.verifying.record import Recorded
from rpeg.tools.verifying.show import as_json, explanations


def step() -> StepRecord:
    return StepRecord(
        sampled={"y": torch.zeros(4, 3)},
        logprobs={"lp_ref": torch.zeros(4, 3)},
        trained_rows={"actor/0": torch.tensor([0, 2]), "actor/1": torch.tensor([1, 3])},
        trained_logprobs={"actor/0": torch.zeros(2, 3), "actor/1": torch.zeros(2, 3)},
        grad_norms={"actor": [1.0, 2.0]},
    )


RECORDING = Recording(
    "p",
    [step(), step()],
    weights={"actor": {"norm.weight": torch.ones(4), "q.weight": torch.ones(4, 4)}},
    greedy={"y": torch.tensor([[5, 6, -1], [5, 7, 8]])},
)
RECORDED = Recorded(
    RECORDING,
    {"y": Greedy(RECORDING.greedy["y"], torch.tensor([[1.0, 1.0, 1.0], [1.0, 5e-5, 1.0]]))},
    notes=(),
)


def verdict(damage: Callable[[Recording], None]) -> Verdict:
    computed = copy.deepcopy(RECORDING)
    damage(computed)
    return judge("tp2", RECORDED, computed)


def behaviour(r: Recording) -> None:
    r.steps[1].sampled["y"][2, 1] = 0.5
    r.steps[1].grad_norms["actor"][0] = 9.0


def first_behaviour(r: Recording) -> None:
    r.steps[0].sampled["y"][0, 0] = float("nan")


def forward(r: Recording) -> None:
    r.steps[0].logprobs["lp_ref"][3, 2] = -0.25


def minibatch(r: Recording) -> None:
    r.steps[0].trained_logprobs["actor/1"][1, 0] = 1e-3


def norm(r: Recording) -> None:
    r.steps[0].grad_norms["actor"][0] = 0.5
    r.steps[0].trained_logprobs["actor/1"] += 1.0
    r.weights["actor"]["norm.weight"] += 0.1


def weights(r: Recording) -> None:
    r.weights["actor"]["q.weight"] += 0.1


def greedy(r: Recording) -> None:
    r.greedy["y"][0, 1] = 9


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (behaviour, "the engine's log-probs (`y`) differ first in step 2, sample 3, token 2"),
        (behaviour, "a publish that is missing, late or wrong"),
        (first_behaviour, "The engine's forward pass is wrong"),
        (forward, "log-probs (`lp_ref`) differ first in step 1, sample 4, token 3, by 2.5e-01"),
        (forward, "the forward pass is wrong"),
        (minibatch, "step 1, optimizer step 2 of `actor`, sample 4, token 1, by 1.0e-03"),
        (minibatch, "an update is wrong"),
        (norm, "differs first in step 1, optimizer step 1 of `actor`: 0.5 instead of 1"),
        (norm, "most apart: norm.weight (1.0e-01)"),
        (norm, "an all-reduce left out"),
        (weights, "most apart: q.weight (1.0e-01)"),
        (weights, "look at the optimizer's step"),
        (greedy, "greedy completion 1 of `y` parts at token 2"),
    ],
)
def test_the_first_difference_is_named(damage: Callable[[Recording], None], said: str) -> None:
    found = verdict(damage)
    assert not found.ok
    assert said in found.problem
    assert explanations([found]) == [f"tp2: {found.problem}"]


def test_ties_excuse_greedy_tokens() -> None:
    def tie(r: Recording) -> None:
        r.greedy["y"][1, 1:] = torch.tensor([9, 9])

    found = verdict(tie)
    assert found.ok
    assert (found.greedy.equal, found.greedy.of) == (1, 2)
    (line,) = explanations([found])
    assert "5.0e-05 apart, a tie" in line


def test_rows_without_loss_may_be_left_out() -> None:
    def idle(r: Recording) -> None:
        r.steps[0].trained_rows["actor/1"] = torch.tensor([3])
        r.steps[0].trained_logprobs["actor/1"] = torch.zeros(1, 2)

    assert verdict(idle).ok


def test_what_cannot_be_compared_differs() -> None:
    def fewer(r: Recording) -> None:
        r.steps[1].grad_norms["actor"].pop()

    assert "took 2 optimizer steps in one, 1 in the other" in verdict(fewer).problem


def test_json_holds_every_figure() -> None:
    good, bad = verdict(lambda r: None), verdict(weights)
    found = as_json("p", [good, bad, Verdict("dp2", "its program failed: ...")], ["note"])
    assert not found["ok"]
    assert found["layouts"][0] == {
        "layout": "tp2",
        "ok": True,
        "logprob": 0.0,
        "grad_norm": 0.0,
        "weights": 0.0,
        "engine": 0.0,
        "greedy": {"equal": 2, "of": 2},
        "problem": None,
        "seconds": 0.0,
    }
    assert found["layouts"][1]["weights"] == pytest.approx(0.0894, abs=1e-3)
    assert found["layouts"][2]["logprob"] is None
    assert set(found["bounds"]) == {"logprob", "grad_norm", "weights", "engine"}


def test_json_says_null_of_what_there_is_not() -> None:
    sft = replace(verdict(lambda r: None), greedy=GreedyTally(), has_engine=False)
    (found,) = as_json("p", [sft], [])["layouts"]
    assert (found["engine"], found["greedy"]) == (None, None)
    assert found["weights"] == 0.0
