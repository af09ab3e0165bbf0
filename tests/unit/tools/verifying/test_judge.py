"""Verdicts name the first difference and what kind of fault makes such a one."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from rich.console import Console

from rpeg.interp import Greedy
from rpeg.runtime.recordings.recording import Recording, StepRecord
from rpeg.tools.verifying.judge import Verdict, judge
from rpeg.tools.verifying.record import Recorded
from rpeg.tools.verifying.show import FIGURES, Report, as_json, explanations, table

MODELS = ("actor", "critic")
ROWS = (torch.tensor([0, 2]), torch.tensor([1, 3]))
POLICY = ("logprob", "advantages", "loss/ppo_clip")
VALUE = ("values", "returns", "loss/value_loss")


def step() -> StepRecord:
    return StepRecord(
        sampled={"y": torch.zeros(4, 3)},
        logprobs={"lp_ref": torch.zeros(4, 3)},
        values={"v": torch.zeros(4, 3)},
        makers={"y": "actor", "lp_ref": "ref", "v": "critic"},
        trained_rows={f"{model}/{k}": ROWS[k] for model in MODELS for k in range(2)},
        trained={
            **{f"actor/{k}/{what}": torch.zeros(2, 3) for k in range(2) for what in POLICY},
            **{f"critic/{k}/{what}": torch.zeros(2, 3) for k in range(2) for what in VALUE},
        },
        grad_norms={model: [1.0, 2.0] for model in MODELS},
    )


RECORDING = Recording(
    "p",
    [step(), step()],
    weights={
        "actor": {"norm.weight": torch.ones(4), "q.weight": torch.ones(4, 4)},
        "critic": {"q.weight": torch.ones(400, 4), "score.weight": torch.ones(1, 4)},
    },
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
    r.steps[0].trained["actor/1/logprob"][1, 0] = 1e-3


def norm(r: Recording) -> None:
    r.steps[0].grad_norms["actor"][0] = 0.5
    r.steps[0].trained["actor/1/logprob"] += 1.0
    r.weights["actor"]["norm.weight"] += 0.1


def weights(r: Recording) -> None:
    r.weights["actor"]["q.weight"] += 0.1


def values(r: Recording) -> None:
    r.steps[0].values["v"][1, 1] = 1e-3
    r.steps[0].trained["critic/0/values"] += 1.0


def returns(r: Recording) -> None:
    r.steps[0].trained["critic/0/returns"][1, 2] = 1e-3
    r.steps[0].grad_norms["critic"][0] = 9.0


def loss(r: Recording) -> None:
    r.steps[1].trained["critic/1/loss/value_loss"] += 0.5
    r.steps[1].grad_norms["critic"][1] = 9.0


def critic_norm(r: Recording) -> None:
    r.steps[0].grad_norms["critic"][1] = 3.0


def head(r: Recording) -> None:
    """Of so few weights that their share in all is below the bound."""
    r.weights["critic"]["score.weight"] += 1e-5


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
        (weights, "the weights of `actor` (policy) are 8.9e-02 apart"),
        (weights, "most apart: q.weight (1.0e-01)"),
        (values, "values (`v`) differ first in step 1, sample 2, token 2, by 1.0e-03"),
        (values, "the forward pass is wrong"),
        (
            returns,
            "the returns that it trains towards differ first in step 1, optimizer step 1 of ",
        ),
        (returns, "of `critic`, sample 3, token 3, by 1.0e-03"),
        (loss, "what `value_loss` comes to differs first in step 2, optimizer step 2 of `critic`"),
        (loss, "a normaliser of one process's tokens"),
        (critic_norm, "step 1, optimizer step 2 of `critic`: 3 instead of 2"),
        (head, "the weights of `critic` (value) are 1.0e-05 apart"),
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
        for what in POLICY:
            r.steps[0].trained[f"actor/1/{what}"] = torch.zeros(1, 2)

    assert verdict(idle).ok


def test_what_cannot_be_compared_differs() -> None:
    def fewer(r: Recording) -> None:
        r.steps[1].grad_norms["actor"].pop()

    assert "took 2 optimizer steps in one, 1 in the other" in verdict(fewer).problem


def test_every_model_and_head_has_its_figures() -> None:
    by_name = {(part.model, part.head): part.figures for part in verdict(head).parts}
    assert list(by_name) == [("actor", "policy"), ("ref", "policy"), ("critic", "value")]
    trained = {"target", "loss", "grad_norm", "weights"}
    assert set(by_name["actor", "policy"]) == {"behaviour", "logprob", *trained}
    assert set(by_name["ref", "policy"]) == {"logprob"}
    assert set(by_name["critic", "value"]) == {"value", *trained}
    assert by_name["actor", "policy"]["weights"] == 0.0
    assert by_name["critic", "value"]["weights"] == pytest.approx(1e-5, rel=0.02)


def test_one_trunk_has_a_part_for_each_head() -> None:
    a = Recording(
        "p",
        [StepRecord(values={"v": torch.zeros(1, 1)}, sampled={"y": torch.zeros(1, 1)})],
        weights={"ac": {"q.weight": torch.ones(4), "score.weight": torch.ones(4)}},
    )
    a.steps[0].makers |= {"v": "ac", "y": "ac"}
    b = copy.deepcopy(a)
    b.weights["ac"]["score.weight"] += 0.5
    policy, value = judge("dp2", Recorded(a, {}, notes=()), b).parts
    assert (policy.head, policy.figures["weights"]) == ("policy", 0.0)
    assert (value.head, value.figures["weights"]) == ("value", 0.5)


def test_json_holds_every_figure() -> None:
    good, bad = verdict(lambda r: None), verdict(weights)
    failed = Verdict("dp2", "its program failed: ...")
    found = as_json([Report("p", (good, bad, failed), ("note",))])
    assert not found["ok"]
    layouts = found["pipelines"][0]["layouts"]
    figures = dict.fromkeys(FIGURES, 0.0)
    assert layouts[0].items() >= {"layout": "tp2", "ok": True, "verdict": "same"}.items()
    assert layouts[0].items() >= {**figures, "problem": None, "refused": None}.items()
    assert layouts[0]["greedy"] == {"equal": 2, "of": 2}
    assert [part["model"] for part in layouts[0]["models"]] == ["actor", "ref", "critic"]
    assert layouts[0]["models"][1] == {
        "model": "ref",
        "head": "policy",
        **dict.fromkeys(FIGURES),
        "logprob": 0.0,
    }
    assert layouts[1]["weights"] == pytest.approx(0.0894, abs=1e-3)
    assert layouts[2]["logprob"] is None
    assert set(found["bounds"]) == set(FIGURES)


def test_json_says_null_of_what_there_is_not() -> None:
    silent = copy.deepcopy(RECORDING)
    for each in silent.steps:
        each.sampled.clear()
    sft = judge("tp2", Recorded(silent, {}, notes=()), copy.deepcopy(silent))
    (found,) = as_json([Report("p", (sft,), ())])["pipelines"][0]["layouts"]
    assert (found["engine"], found["greedy"]) == (None, None)
    assert found["weights"] == 0.0


def test_one_table_of_all_pipelines() -> None:
    good, bad = verdict(lambda r: None), verdict(head)
    refused = Verdict("dp2+critic=tp2", refused="there is no model `critic`")
    reports = [Report("grpo", (good, refused), ()), Report("ppo", (bad,), ())]
    console = Console(width=200, record=True)
    console.print(table(reports))
    rows = [
        [c.strip() for c in r.split("\u2502")[1:-1]] for r in console.export_text().splitlines()
    ]
    named = {tuple(row[:4]): row[4:] for row in rows if row}
    assert named["grpo", "tp2", "actor", "policy"][-3:] == ["2 of 2", "same", "0"]
    assert named["", "", "critic", "value"][5] == "-"
    assert named["grpo", "dp2+critic=tp2", "", ""][-2] == "refused"
    assert [report.ok for report in reports] == [True, False]
    (line,) = explanations(reports[0].verdicts)
    assert line == "dp2+critic=tp2: refused: there is no model `critic`"
