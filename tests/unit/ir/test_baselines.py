"""What rewards and divergences are compared with: ReMax's greedy response, a KL's reference."""

from __future__ import annotations

import pytest

from rpeg.frontend import check

STEP = """rpeg 0.1
pipeline p {{
  model actor = policy("a", optim=adamw(lr=1e-6))
  model ref = policy(actor@0)
  state beta = scalar(init={init})
  data train = prompts("train.jsonl")
  verifier good = outcome("rule:math")
  verifier other = outcome("python:m:f")
  step i < 9 {{
    q = batch(train, size=8)
    q2 = batch(train, size=8)
    y, lp = generate({weights}, q, n=4, max_tokens=64)
    y0, lp0 = generate({greedy}, max_tokens=64)
    r = score(good, y)
    r0 = score({scorer}, y0)
    lp_ref = logprob(ref, y)
    lp_now = logprob(actor@i, y)
    rt = kl_penalty(r, {penalty})
    kl = kl_loss(y, {reference})
    beta@i+1 = kl_controller(beta@i, {controller}, horizon=10)
    adv = remax_advantage(r, {baseline})
    pg = ppo_clip(y, adv, lp, clip_low=0.2, clip_high=0.2)
    actor@i+1 = update(actor@i, pg, kl, agg=token_mean{update})
  }}
}}
"""
RIGHT = {
    "init": "0.1",
    "weights": "actor@i",
    "greedy": "actor@i, q, temperature=0.0",
    "scorer": "good",
    "baseline": "r0",
    "penalty": "lp_now, lp_ref, coef=0.1",
    "reference": "lp_ref, coef=0.1",
    "controller": "lp, lp_ref, target=0.1",
    "update": "",
}
LAGGED = {"weights": "actor@i-1", "greedy": "actor@i-1, q, temperature=0.0"}


def broken(**changed: str) -> set[str]:
    text = STEP.format(**{**RIGHT, **changed})
    return {d.rule for d in check(text, "example.rpeg") if d.severity == "error"}


@pytest.mark.parametrize(
    "changed",
    [
        {},
        LAGGED,
        {"penalty": "lp_now, lp_ref, coef=0.0"},
        {"penalty": "lp, lp_ref, coef=beta@i"},
        {"reference": "lp_now, coef=0.1", "update": ", minibatches=2"},
        {**LAGGED, "reference": "lp, coef=0.1"},
        {**LAGGED, "penalty": "lp_now, lp, coef=0.1"},
    ],
)
def test_what_is_right(changed: dict[str, str]) -> None:
    assert not broken(**changed)


@pytest.mark.parametrize(
    "changed",
    [
        {"greedy": "actor@i, q"},
        {"greedy": "actor@i, q2, temperature=0.0"},
        {"greedy": "actor@i, q, n=2, temperature=0.0"},
        {"greedy": "ref, q, temperature=0.0"},
        {"greedy": "actor@i-1, q, temperature=0.0"},
        {"scorer": "other"},
        {"baseline": "r"},
    ],
)
def test_no_greedy_response(changed: dict[str, str]) -> None:
    assert broken(**changed) == {"remax-baseline"}


@pytest.mark.parametrize(
    "changed",
    [{"penalty": "lp_ref, lp, coef=0.1"}, {"controller": "lp_ref, lp, target=0.1"}],
)
def test_a_reference_in_the_place_of_the_policy(changed: dict[str, str]) -> None:
    assert broken(**changed) == {"foreign-logprobs"}


@pytest.mark.parametrize(
    "changed",
    [
        {"penalty": "lp, lp_now, coef=0.1"},
        {"controller": "lp_now, lp, target=0.1"},
        {"reference": "lp_now, coef=0.1"},
        {"reference": "lp, coef=0.1"},
    ],
)
def test_a_divergence_from_itself(changed: dict[str, str]) -> None:
    assert broken(**changed) == {"own-teacher"}


@pytest.mark.parametrize(
    "changed",
    [
        {"init": "-0.1"},
        {"penalty": "lp, lp_ref, coef=-0.1"},
        {"reference": "lp_ref, coef=-0.1"},
        {"controller": "lp, lp_ref, target=-0.1"},
        {"controller": "lp, lp_ref, target=0.0"},
    ],
)
def test_negative_coefficients(changed: dict[str, str]) -> None:
    assert broken(**changed) == {"setting-range"}
