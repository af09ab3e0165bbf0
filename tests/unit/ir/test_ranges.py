"""Settings out of their range: refused where they stand, before anything runs."""

from __future__ import annotations

import math

import pytest

from rpeg.frontend import check
from rpeg.ir.rules.verify import diagnose
from rpeg.ir.text.parse import parse_module
from rpeg.ir.vocabulary.settings import MOST_WHOLE, Range

PIPELINE = """\
rpeg 0.1
pipeline p {{
  model actor = policy("models/tiny-qwen2", optim=adamw({adamw}), dtype=fp32)
  model slow = policy(actor@0, dtype=fp32)
  model critic = value("models/tiny-qwen2", optim=adamw(lr=1e-4))
  data train = prompts("gym:countdown", seed={seed})
  verifier c = {verifier}
  state kl = scalar(init=0.1)
  step i < 10 {{
    q = batch(train, size={size})
    y, lp = generate(actor@i, q, n=4, max_tokens=16)
    r = score(c, y)
    lp_ref = logprob(slow@i, y)
    old = logprob(actor@i, y)
    r_kl = kl_penalty(r, old, lp_ref, coef={coef})
    v = values(critic@i, y)
    adv, ret = gae(r_kl, v, {gae})
    w = importance(old, lp, {importance})
    pg = ppo_clip(y, adv, old, w, {clip})
    vl = value_loss(y, ret, v, clip=0.2)
    actor@i+1 = update(actor@i, pg, agg=token_mean)
    critic@i+1 = update(critic@i, vl, agg=token_mean)
    slow@i+1 = ema(slow@i, actor@i+1, decay={decay})
    kl@i+1 = kl_controller(kl@i, old, lp_ref, {controller})
    every(steps=5) {{
      export(actor@i+1, to="{to}")
    }}
  }}
  expect y = {expect}
}}
"""
RIGHT = {
    "adamw": "lr=1e-4, beta1=0.0",
    "seed": "20261129101112",
    "verifier": 'outcome("rule:overlong", soft=8, max=16)',
    "size": "8",
    "coef": "kl@i",
    "gae": "gamma=1.0, lambda=0.0",
    "importance": "cap=0.5",
    "clip": "clip_low=1.0, clip_high=2.0",
    "decay": "1.0",
    "controller": "target=0.1, horizon=10",
    "to": "../out",
    "expect": "lognormal(mean=5, cv=0.5)",
}


def errors(**changes: str) -> list[str]:
    found = check(PIPELINE.format(**RIGHT | changes), "p.rpeg")
    return [f"{d.at.line}: {d.message}" for d in found if d.severity == "error"]


def test_the_bounds_themselves_are_sound() -> None:
    assert errors() == []


@pytest.mark.parametrize(
    ("part", "written", "message"),
    [
        ("adamw", "lr=1e-4, beta1=9", "3: beta1=9.0: expected at least 0 and below 1"),
        ("adamw", "lr=1e-4, beta2=1", "3: beta2=1.0: expected at least 0 and below 1"),
        ("size", str(MOST_WHOLE + 1), f"10: size={MOST_WHOLE + 1}: expected at most {MOST_WHOLE}"),
        ("coef", "-0.1", "15: coef=-0.1: expected at least 0"),
        ("gae", "gamma=3.0", "17: gamma=3.0: expected at least 0 and at most 1"),
        ("gae", "lambda=1.5", "17: lambda=1.5: expected at least 0 and at most 1"),
        ("importance", "cap=0", "18: cap=0.0: expected above 0"),
        ("clip", "clip_low=1.5, clip_high=2.0", "19: clip_low=1.5: expected at least 0 and at mo"),
        ("decay", "1.5", "23: decay=1.5: expected at least 0 and at most 1"),
        ("controller", "target=0.0, horizon=10", "24: target=0.0: expected above 0"),
        ("controller", "target=0.1, horizon=-1", "24: horizon=-1: expected at least 1"),
        ("to", "", '26: to="": expected text that is not empty'),
        ("expect", "lognormal(mean=5, cv=1e9)", "29: cv=1000000000.0: expected"),
        ("expect", "lognormal(mean=-5, cv=0.5)", "29: mean=-5: expected above 0"),
    ],
)
def test_out_of_range(part: str, written: str, message: str) -> None:
    found = errors(**{part: written})
    assert len(found) == 1 and found[0].startswith(message), found


def test_a_ratio_is_at_most_1() -> None:
    """It is of a collect, which this step has none of."""
    of_another, out_of_range = errors(expect="ratio(mean=1.5)")
    assert "ratio is the share that a collect keeps" in of_another
    assert out_of_range == "29: mean=1.5: expected above 0 and at most 1"


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ('outcome("rule:overlong", soft=5, max=2)', "soft=5: expected below max=2"),
        ('outcome("rule:overlong", soft=5, max=5)', "soft=5: expected below max=5"),
        ('outcome("rule:overlong", soft=5)', "rule:overlong needs both bounds"),
        ('outcome("rule:overlong")', "rule:overlong needs both bounds"),
        ('outcome("rule:math", soft=5)', "rule:math has no setting `soft`: it is for rule:overl"),
        ('outcome("gym:countdown", max=5)', "gym:countdown has no setting `max`: it is for rule"),
    ],
)
def test_lengths_are_for_the_rule_of_lengths(written: str, message: str) -> None:
    (found,) = errors(verifier=written)
    assert found.startswith(f"7: {message}")


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (
            'rpeg.verifier @o outcome("rule:overlong") {soft = "x", max = 2 : i64}',
            "soft: expected a whole number",
        ),
        (
            'rpeg.model @o generative_reward("x") {template = 5, max_tokens = 4 : i64}',
            'template: expected text in "..."',
        ),
    ],
)
def test_a_setting_of_another_kind_is_no_number_to_compare(declared: str, message: str) -> None:
    module, sources, problems = parse_module(f"rpeg.pipeline @p {{ {declared} }}", "p.mlir")
    assert module is not None and not problems
    assert message in {d.message for d in diagnose(module, sources)}


@pytest.mark.parametrize(
    ("part", "written", "message"),
    [
        ("size", '"8"', "10: size: expected a whole number: write it without quotes, size=8"),
        ("seed", '"-1"', "6: seed: expected a whole number: write it without quotes, seed=-1"),
        ("adamw", 'lr="1e-4"', "3: lr: expected a number: write it without quotes, lr=1e-4"),
        (
            "coef",
            '"0.1"',
            "15: coef: expected a number or a state such as kl@i: write it without quot",
        ),
        (
            "verifier",
            'outcome("rule:math", timeout="10s")',
            "7: timeout: expected a time such as 10s: write it without quotes, timeout=10s",
        ),
        ("size", '"many"', "10: size: expected a whole number"),
        ("size", '"0.5"', "10: size: expected a whole number"),
        ("size", '"8 # rows"', "10: size: expected a whole number"),
    ],
)
def test_numbers_in_quotes(part: str, written: str, message: str) -> None:
    found = errors(**{part: written})
    assert found and found[0].startswith(message), found
    assert ("quot" in found[0]) == ("quot" in message)


def test_steps_in_quotes() -> None:
    text = PIPELINE.format(**RIGHT).replace("i < 10", 'i < "10"')
    (found,) = check(text, "p.rpeg")
    assert found.message == "expected a number, found text: write 10, without quotes"


def test_a_quantity_has_no_sign() -> None:
    text = PIPELINE.format(**RIGHT | {"verifier": 'outcome("rule:math", timeout=-5s)'})
    (found,) = check(text, "p.rpeg")
    assert found.message == "a number with a unit has no sign: write 5s, without `-`"


def test_numbers_of_params_and_lists_in_quotes() -> None:
    text = PIPELINE.format(**RIGHT | {"size": "$rows"})
    text = text.replace("  model actor", '  param rows = "8"\n  model actor')
    text = text.replace(
        "    v = values", '    m = weighted_sum(r, r, weights=["1", 2.0])\n    v = values'
    )
    found = [d.message for d in check(text, "p.rpeg") if d.severity == "error"]
    assert found[:2] == [
        "size: expected a whole number: write it without quotes, param rows = 8",
        "weights: expected a list such as [1.0, 0.1]: write its items without quotes",
    ]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_no_range_holds_what_is_not_finite(number: float) -> None:
    assert number not in Range()


def test_how_a_range_reads() -> None:
    assert str(Range()) == ""
    assert str(Range(above=0, most=1)) == "above 0 and at most 1"
