"""A mistake has one message: nothing that follows from it has another."""

from __future__ import annotations

import pytest

from rpeg.frontend import load
from tests.unit.passes.pipelines import place

TEXT = """rpeg 0.1
pipeline p {
  model actor = policy("tiny", optim=adamw(lr=3e-4))
  model ref = policy(actor@0)
  data train = prompts("rows.jsonl")
  data heldout = prompts("more.jsonl")
  verifier correct = outcome("rule:exact_match")
  state klc = scalar(init=0.01)
  step i < 9 {
    q = batch(train, size=64)
    y, lp = generate(actor@i, q, n=8, max_tokens=64)
    acc = score(correct, y)
    adv = group_advantage(acc, baseline=mean, scale=std)
    lp_ref = logprob(ref, y)
    pg = ppo_clip(y, adv, lp, clip_low=0.2, clip_high=0.2)
    kl = kl_loss(y, lp_ref, coef=0.01)
    actor@i+1 = update(actor@i, pg, kl, agg=token_mean)
    klc@i+1 = kl_controller(klc@i, lp, lp_ref, target=0.1, horizon=100)
    every(steps=3) {
      dev = eval(actor@i+1, heldout, correct, max_tokens=64)
    }
  }
  expect y = lognormal(mean=40, cv=0.5, cap=64)
  plan here on "alps-1" {
    pool all = gpus(0..1)
    pool cpu = cores(0..0, per_node=8)
    y on all, par(dp=2), engine(name=embedded)
    acc on cpu
    lp_ref on all, par(dp=2)
    actor on all, par(dp=2), publish(all, mode=reshard)
    dev on all, par(dp=2)
  }
}
"""


def test_as_it_stands_it_has_none() -> None:
    assert load(TEXT, "f").diagnostics == ()


@pytest.mark.parametrize(
    ("old", "new", "at", "message"),
    [
        ("= policy(", "= plicy(", "plicy", "`plicy` is not a kind of model; did you mean `policy`"),
        ("= scalar(", "= salar(", "salar", "`salar` is not a kind of state; did you mean `scalar`"),
        ("max_tokens=64)\n    acc", "mx_tokens=64)\n    acc", "mx_tok", "generate has no setting"),
        ("score(correct, y)", "score(correct)", "score(", "score needs trajectories as operand 2"),
        ("score(correct,", "score(corect,", "corect,", "`corect` is not defined; did you mean"),
        ("(actor@i, q", "(actr@i, q", "actr", "`actr` is not defined; did you mean `actor`"),
        ("(ref, y", "(ref, z", "z)", "`z` is not defined"),
        ("actor@i+1 = u", "ator@i+1 = u", "ator@", "`ator` is not a model or state declared"),
        ("update(actor@i", "update(ator@i", "ator@", "`ator` is not defined; did you mean `actor`"),
        ("update(actor@i", "update(actor@j", "j,", "`j` is not a version of this step"),
        ("agg=", "ag=", "ag=", "update has no setting `ag`; did you mean `agg`?"),
        ("(klc@i,", "(klcc@i,", "klcc@", "`klcc` is not defined; did you mean `klc`?"),
        ("every(", "evry(", "evry(", "`evry` is not an operation; did you mean `every`?"),
        ("every(steps", "every(seps", "seps", "every has no setting `seps`; did you mean `steps`?"),
        ("gpus(0..1)", "gpu(0..1)", "gpu(", "`gpu` is not a kind of pool; did you mean `gpus`?"),
        ("gpus(0..1)", "gpus(7)", "7)", "gpus takes a range such as 0..39, both ends included"),
        ("pool all", "pool al", "all, par", "`all` is not a pool of this plan; did you mean `al`?"),
        ("y on all", "y on al", "al, par", "`al` is not a pool of this plan; did you mean `all`?"),
        ("publish(all", "publish(al", "al, mode", "`al` is not a pool of this plan; did you mean"),
        ("publish(all", "pblish(all", "pblish", "`pblish` is not a clause; did you mean `publish`"),
        ("mode=", "mod=", "mod=", "publish has no setting `mod`; did you mean `mode`?"),
        ("expect y", "expect x", "x = log", "`x` is not defined"),
        ("acc on", "ac on", "ac on", "`ac` is not a stage; did you mean `acc`?"),
        ("size=64", "size64", "size64", "a setting is written name=value: size=64"),
        ("64)\n    acc", "64, n8)\n    acc", "n8)", "a setting is written name=value: n=8"),
        ("agg=token_mean", "aggtoken_mean", "aggt", "a setting is written name=value: agg=token"),
        ("par(dp=2), e", "par(dp2), e", "dp2", "a setting is written name=value: dp=2"),
        ("(mean=40", "(mean40", "mean40", "a setting is written name=value: mean=40"),
        ("adamw(lr=3e-4)", "adamw(3e-4)", "3e-4", "a setting is written with its name: lr=3e-4"),
        ("adamw(", "adamw(ref, ", "ref, ", "adamw takes settings only: write name=value"),
        ("(name=embedded", "(embedded", "embedded", "`embedded` is a choice: write name=embedded"),
        ("max_tokens=64", "max_tokens=1,024", "024", "024 needs a name: settings are written"),
        ("gpus(0..1)", "gpus(1..0)", "1..0", "1..0 is empty: the smaller number comes first"),
        ("steps=3", "steps", "steps)", "a setting is written name=value: steps=20"),
    ],
)  # fmt: skip
def test_one(old: str, new: str, at: str, message: str) -> None:
    assert old in TEXT
    text = TEXT.replace(old, new, 1)
    (found,) = load(text, "f").diagnostics
    assert str(found.at) == place(text, at)
    assert found.message.startswith(message)


def test_two_mistakes_in_a_line_have_two() -> None:
    """A clause that is none hides no stage that is none."""
    text = TEXT.replace("lp_ref on all, par", "lp_reff on all, pra")
    assert [d.message for d in load(text, "f").diagnostics] == [
        "`lp_reff` is not a stage; did you mean `lp_ref`?",
        "`pra` is not a clause; did you mean `par`?",
    ]


def test_things_come_first_whatever_they_are_called() -> None:
    """A name that is given is not a setting without its sign."""
    text = TEXT.replace("q = batch", "size64 = batch").replace(
        "generate(actor@i, q, n=8, max_tokens=64)", "generate(actor@i, n=8, size64, max_tokens=64)"
    )
    assert [d.message for d in load(text, "f").diagnostics] == [
        "things come before settings: move it before the first name=value"
    ]
