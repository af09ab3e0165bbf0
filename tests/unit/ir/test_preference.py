"""Pairs of responses: what may be done with them, and what is said where something else is."""

from __future__ import annotations

import pytest

from rpeg.frontend import check

PIPELINE = """rpeg 0.1
pipeline p {{
  model actor = policy("a", optim=adamw(lr=1e-6))
  model ref = policy(actor@0)
  model rm = reward("b", optim=adamw(lr=1e-5))
  data train = pairs("pairs.jsonl")
  data rows = demos("rows.jsonl")
  data heldout = pairs("heldout.jsonl")

  step i < 10 {{
    b = batch(train, size=8)
    d = batch(rows, size=8)
    lp_ref = logprob(ref, b)
    lp_own = logprob(actor@i, b)
    ce = cross_entropy(d)
    rl = {reward}
    pref = {dpo}
    actor@i+1 = update(actor@i, {losses})
    rm@i+1 = update(rm@i, {scored}, agg=pair_mean)
    every(steps=5) {{
      a = eval_loss({policy})
      c = eval_loss({model})
    }}
  }}
}}
"""
RIGHT = {
    "reward": "reward_loss(b)",
    "dpo": "dpo(b, lp_ref, beta=0.1)",
    "losses": "pref, agg=pair_mean, minibatches=2",
    "scored": "rl",
    "policy": "actor@i+1, heldout, ref, beta=0.1",
    "model": "rm@i+1, heldout",
}


def errors(**changes: str) -> list[str]:
    found = check(PIPELINE.format(**RIGHT | changes), "p.rpeg")
    return [d.message for d in found if d.severity == "error"]


def test_a_sound_one() -> None:
    assert errors() == []


@pytest.mark.parametrize(
    ("part", "written", "message"),
    [
        ("dpo", "dpo(b, lp_own, beta=0.1)", "dpo's reference is a frozen model, such as policy("),
        ("dpo", "dpo(d, lp_ref, beta=0.1)", "dpo takes pairs as `pairs`; `d` is demos"),
        ("dpo", "dpo(b, lp_ref, beta=0)", "beta=0.0: expected above 0"),
        (
            "dpo",
            "dpo(b, lp_ref, beta=0.1, label_smoothing=0.5)",
            "label_smoothing=0.5: expected at least 0 and below 0.5",
        ),
        ("reward", "reward_loss(b, margin=-1)", "margin=-1.0: expected at least 0"),
        ("losses", "pref, agg=token_mean", "dpo is a loss a pair: write pair_mean"),
        (
            "losses",
            "ce, agg=pair_mean",
            "cross_entropy is a loss a token: pair_mean is for losses of pairs",
        ),
        ("losses", "pref, ce, agg=pair_mean", "cross_entropy is a loss a token"),
        ("losses", "rl, agg=pair_mean", "reward_loss trains a reward model; `actor` is a policy"),
        ("losses", "pref, agg=pair_mean, minibatches=3", "8 pairs do not divide into 3"),
        ("scored", "pref", "dpo trains a policy model; `rm` is a reward model"),
        ("policy", "actor@i+1, heldout", "write eval_loss(actor@i+1, heldout, ref, beta=0.1)"),
        ("policy", "actor@i+1, rows, ref", "`reference` is for a policy on pairs: remove it"),
        ("model", "rm@i+1, rows", "whose loss is on pairs; `rows` holds demos"),
        ("model", "rm@i+1, heldout, beta=0.1", "`beta` is for a policy on pairs: remove it"),
    ],
)
def test_messages(part: str, written: str, message: str) -> None:
    (found,) = errors(**{part: written})
    assert message in found


JUDGED = """rpeg 0.1
pipeline p {{
  model actor = policy("a", optim=adamw(lr=1e-6))
  model judge = generative_reward("b", {settings})
  data train = prompts("rows.jsonl")

  step i < 10 {{
    q = batch(train, size=8)
    y, lp = generate(actor@i, q, n=4, max_tokens=8)
    r = score(judge, y)
    adv = group_advantage(r, baseline=mean, scale=std)
    pg = policy_gradient(y, adv)
    actor@i+1 = update(actor@i, pg, agg=token_mean)
  }}
}}
"""


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ('template="{response}", max_tokens=9', None),
        ('template="{prompt}", max_tokens=9', "the judge has to see what it judges: write {resp"),
        ("max_tokens=9", "generative_reward needs the setting `template`"),
        ('template="{response} {answer} {\\"score\\": 7} \\\\boxed{n}", max_tokens=9', None),
        ('template="{response} {nope}", max_tokens=9', "template: nothing fills {nope}; known: {"),
        ('template="{response}"', "generative_reward needs the setting `max_tokens`"),
        ('template="{response}", max_tokens=9, optim=adamw(lr=1e-6)', "has no setting `optim`"),
    ],
)
def test_judges(settings: str, message: str | None) -> None:
    text = JUDGED.format(settings=settings)
    found = [d.message for d in check(text, "p.rpeg") if d.severity == "error"]
    assert len(found) == (message is not None)
    assert all(message in each for each in found if message is not None)
