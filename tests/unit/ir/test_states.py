"""States of a step: each gets one new version, which the step itself does not work with."""

from __future__ import annotations

import pytest

from rpeg.frontend import check

STEP = """rpeg 0.1
pipeline p {{
  model actor = policy("a", optim=adamw(lr=1e-6))
  model ref = policy(actor@0)
  state kl = scalar(init=0.1)
  data train = prompts("train.jsonl")
  verifier good = outcome("rule:math")
  step i < 9 {{
    q = batch(train, size=8)
    y, lp = generate(actor@i, q, n=4, max_tokens=64)
    r = score(good, y)
    lr = logprob(ref, y)
    {lines}
    rs = sum_tokens(rt)
    adv = group_advantage(rs, baseline=mean, scale=std)
    pg = ppo_clip(y, adv, lp, clip_low=0.2, clip_high=0.2)
    actor@i+1 = update(actor@i, pg, agg=token_mean)
  }}
}}
"""
NOW = "rt = kl_penalty(r, lp, lr, coef=kl@i)"
NEXT = "rt = kl_penalty(r, lp, lr, coef=kl@i+1)"
CONTROL = "kl@i+1 = kl_controller(kl@i, lp, lr, target=0.1, horizon=100)"
SELDOM = f"every(steps=2) {{\n      {CONTROL}\n    }}"
AGAIN = CONTROL.replace("(kl@i,", "(kl@i+1,")


def broken(*lines: str) -> set[str]:
    text = STEP.format(lines="\n    ".join(lines))
    return {d.rule for d in check(text, "example.rpeg") if d.severity == "error"}


@pytest.mark.parametrize("lines", [[NOW], [NOW, CONTROL], [CONTROL, NOW], [SELDOM, NOW]])
def test_a_scalar_is_read_as_the_step_starts_and_made_once(lines: list[str]) -> None:
    assert not broken(*lines)


@pytest.mark.parametrize("lines", [[CONTROL, CONTROL], [SELDOM, CONTROL], [CONTROL, SELDOM]])
def test_two_controllers_of_one_scalar(lines: list[str]) -> None:
    assert broken(NOW, *lines) == {"yielded-twice"}


def test_a_controller_that_goes_on_from_another() -> None:
    assert broken(NOW, CONTROL, AGAIN) == {"yielded-twice", "used-after-yield"}


@pytest.mark.parametrize("control", [CONTROL, SELDOM])
def test_a_scalar_of_the_next_step(control: str) -> None:
    assert broken(control, NEXT) == {"used-after-yield"}


OTHER = [
    "kl@i+1 = ema(kl@i, actor@i, decay=0.9)",
    "ref@i+1 = kl_controller(ref@i, lp, lr, target=0.1, horizon=100)",
]


@pytest.mark.parametrize("line", OTHER)
def test_a_state_of_another_kind(line: str) -> None:
    assert "operand-kind" in broken(NOW, line)
