from __future__ import annotations

import pytest
from xdsl.dialects.builtin import ModuleOp

from rpeg.ir.ops.rewards import GroupAdvantageOp
from rpeg.ir.ops.sampling import LogprobOp
from rpeg.ir.text.sources import position_of
from tests.unit.passes.pipelines import declared, grpo, lines, names, one, parse, place, run

PASS = "rpeg-canonicalize"
SCORE = "    r = score(correct, y)\n"


def canonical(*changes: tuple[str, str]) -> ModuleOp:
    return run(parse(grpo(*changes)), PASS)


@pytest.mark.parametrize(("weight", "left"), [("1.0", 0), ("0.5", 1)])
def test_a_sum_of_one_reward(weight: str, left: int) -> None:
    more = SCORE.replace("r =", "acc =") + f"    r = weighted_sum(acc, weights=[{weight}])\n"
    module = canonical((SCORE, more))
    assert names(module).count("weighted_sum") == left


def test_the_same_thing_is_computed_once_whatever_its_stage_is_called() -> None:
    text = grpo(
        ("kl = ", "lp_again = logprob(ref, y)\n    kl = "), ("lp_ref, coef", "lp_again, coef")
    )
    module = run(parse(text), PASS)
    twin = one(module, LogprobOp, 1)
    assert names(module).count("logprob") == 2
    assert str(position_of(twin)) == place(text, "logprob(ref, y)")


def test_different_settings_are_kept_apart() -> None:
    other = "kl2 = kl_loss(y, lp_ref, coef=0.2)\n    actor@i+1"
    module = canonical(
        ("actor@i+1 = update(actor@i, pg, kl,", f"{other} = update(actor@i, pg, kl, kl2,")
    )
    assert names(module).count("kl_loss") == 2


def test_what_lost_its_reader_goes_with_what_only_it_needed() -> None:
    again = ("kl = ", "lp_again = logprob(other, y)\n    lp_third = logprob(other, y)\n    kl = ")
    penalty = ("kl_loss(y, lp_ref,", "kl_loss(y, lp_third,")
    text = grpo(again, penalty, ("  data train", "  model other = policy(actor@0)\n  data train"))
    text = text.removesuffix("}\n") + (
        "  expect lp_again = lognormal(mean=40ms, cv=0.5)\n"
        "  expect lp_third = lognormal(mean=40ms, cv=0.5)\n}\n"
    )
    module = run(parse(text), PASS)
    assert names(module).count("logprob") == 3
    assert lines(module) == ["lp_again"]


def test_what_was_unused_from_the_start_stays() -> None:
    spare = ("step i", 'verifier spare = outcome("rule:answer_tag")\n  step i')
    module = canonical(spare, ("lp_old =", "unread = logprob(ref, y)\n    lp_old ="))
    assert "spare" in declared(module)
    assert "unread" in [op.results[0].name_hint for op in module.walk() if op.results]


def test_effects_stay() -> None:
    module = canonical(("checkpoint()", 'checkpoint()\n      export(actor@i+1, to="out")'))
    assert names(module)[-3:] == ["eval", "checkpoint", "export"]


def test_places_stay() -> None:
    text = grpo((SCORE, SCORE.replace("r =", "a =") + "    r = weighted_sum(a, weights=[1.0])\n"))
    module = run(parse(text), PASS)
    assert str(position_of(one(module, GroupAdvantageOp))) == place(text, "group_advantage(")


def test_a_second_run_changes_nothing() -> None:
    module = canonical(("kl = ", "lp_again = logprob(ref, y)\n    kl = "))
    once = str(module)
    assert str(run(module, PASS)) == once
