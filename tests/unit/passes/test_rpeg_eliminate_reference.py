from __future__ import annotations

from rpeg.ir.ops.losses import KlLossOp
from rpeg.ir.ops.updates import UpdateOp
from rpeg.ir.text.sources import position_of
from tests.unit.passes.pipelines import declared, grpo, lines, names, one, parse, place, run

PASS = "rpeg-eliminate-reference"
ZERO = ("coef=0.1", "coef=0.0")
PER_TOKEN = (
    "adv = group_advantage(r, baseline=mean, scale=std)",
    "rk = kl_penalty(r, lp_old, lp_ref, coef=0.0)\n"
    "    ret = returns(rk, gamma=1.0)\n    adv = whiten(ret)",
)


def test_zero_coefficient() -> None:
    text = grpo(ZERO).removesuffix("}\n") + "  expect lp_ref = lognormal(mean=4, cv=0.5)\n}\n"
    module = parse(text)
    assert lines(module) == ["lp_ref"]
    run(module, PASS)
    assert "ref" not in declared(module)
    assert names(module).count("logprob") == 1
    assert "kl_loss" not in names(module)
    assert lines(module) == []
    update = one(module, UpdateOp)
    assert [loss.name_hint for loss in update.operands[2:]] == ["pg"]
    assert str(position_of(update)) == place(text, "update(")


def test_another_coefficient() -> None:
    module = parse(grpo())
    before = str(module)
    assert str(run(module, PASS)) == before


def test_the_only_loss_stays() -> None:
    module = run(parse(grpo(ZERO, ("update(actor@i, pg, kl,", "update(actor@i, kl,"))), PASS)
    assert "kl_loss" in names(module)
    assert "ref" in declared(module)


def test_another_kl_loss_is_another_loss() -> None:
    two = ("    actor@i+1", "    more = kl_loss(y, lp_ref, coef=0.2)\n    actor@i+1")
    module = run(
        parse(grpo(ZERO, two, ("update(actor@i, pg, kl,", "update(actor@i, kl, more,"))), PASS
    )
    assert [loss.name_hint for loss in one(module, UpdateOp).operands[2:]] == ["more"]


def test_the_reference_stays_for_another_reader() -> None:
    text = grpo(ZERO, (PER_TOKEN[0], PER_TOKEN[1].replace("0.0", "0.5")))
    module = run(parse(text), PASS)
    assert not [op for op in module.walk() if isinstance(op, KlLossOp)]
    assert "ref" in declared(module)
    assert "kl_penalty" in names(module)


def test_a_penalty_on_rewards_a_response_still_spreads_them() -> None:
    module = run(parse(grpo(ZERO, PER_TOKEN)), PASS)
    assert "kl_penalty" in names(module)


def test_a_penalty_of_zero_on_rewards_a_token() -> None:
    twice = PER_TOKEN[1].replace(
        "    ret = returns(rk",
        "    rk2 = kl_penalty(rk, lp_old, lp_ref, coef=0.0)\n    ret = returns(rk2",
    )
    module = run(parse(grpo(ZERO, (PER_TOKEN[0], twice))), PASS)
    assert names(module).count("kl_penalty") == 1


def test_a_model_that_only_the_reference_started_from_goes_too() -> None:
    text = grpo(
        ZERO,
        ("model ref = policy(actor@0", 'model base = policy("base")\n  model ref = policy(base@0'),
    )
    assert {"base", "ref"} & {*declared(run(parse(text), PASS))} == set()


def test_a_second_run_changes_nothing() -> None:
    once = str(run(module := parse(grpo(ZERO)), PASS))
    assert str(run(module, PASS)) == once
