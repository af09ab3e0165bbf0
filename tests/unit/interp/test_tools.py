"""Turns and tools: what a tool says is read by the policy and never trained on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rpeg.interp import Interpreter, World
from rpeg.interp.tools import answer, calculator
from tests.unit.interp.pipelines import parse
from tests.unit.interp.small import CALL, VOCABULARY, write_world

STEP = """
    q = batch(train, size=4)
    y, lp = generate(actor@i, q, calc, n=2, max_tokens=8, max_turns=3, stop=["</call>"])
    r = score(brief, y)
    adv = group_advantage(r, baseline=mean, scale=std)
    prox = logprob(actor@i, y)
    pg = ppo_clip(y, adv, prox, clip_low=0.2, clip_high=0.2)
    actor@i+1 = update(actor@i, pg, agg=token_mean)
    every(steps=1) {
      dev = eval(actor@i+1, train, brief, calc, max_turns=2, max_tokens=4, limit=2)
    }"""
THINGS = """
  tool calc = function("rule:calculator")
  data train = prompts("prompts.jsonl")
  verifier brief = outcome("rule:overlong", soft=0, max=12)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_world(tmp_path_factory.mktemp("tools"))


def test_a_tool_token_has_no_gradient(folder: Path) -> None:
    module = parse(STEP, more=THINGS)
    machine = Interpreter(module, "p", World(folder))
    called = 0
    for step in machine.run(2).steps:
        y = step.trajectories["y"]
        said = (y.tokens != 0) & ~y.mask
        assert bool((y.versions[said] == -1).all())
        assert bool((step.sampled["y"][said] == 0).all())
        assert bool((step.logprobs["prox"][said] == 0).all())
        torch.testing.assert_close(step.sampled["y"], step.logprobs["prox"])  # read in context
        for row, mask in zip(y.tokens.tolist(), y.mask.tolist(), strict=True):
            words = "".join(
                VOCABULARY[t] for t, written in zip(row, mask, strict=True) if not written and t
            )
            called += bool(words)
            assert set(filter(None, words.split("</result>"))) <= {"<result>2", "<result>", ""}
    assert called


def test_a_call_is_answered(folder: Path) -> None:
    assert answer(f"12{CALL}", {"calc": calculator}) == "<result>2</result>"
    assert answer("12", {"calc": calculator}) is None
    assert answer("<call>find(x)</call>", {"calc": calculator}) == (
        "<result>no tool find; there is calc</result>"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("3*(2+1)/2", "4.5"),
        ("-2 - -3", "1"),
        ("1/0", "error: '1/0'"),
        ("__import__('os')", "error: numbers, + - * / and brackets only"),
        ("2**99", "error: numbers, + - * / and brackets only"),
        ("1+", "error: '1+'"),
    ],
)
def test_the_calculator(text: str, said: str) -> None:
    found = answer(f"<call>calc({text})</call>", {"calc": calculator})
    assert found is not None and found.removeprefix("<result>").startswith(said)
