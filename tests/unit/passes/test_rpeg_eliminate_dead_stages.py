from __future__ import annotations

import pytest
from xdsl.dialects.builtin import ModuleOp

from rpeg.passes.rpeg_eliminate_dead_stages import RpegEliminateDeadStagesPass
from tests.unit.passes.pipelines import declared, grpo, lines, names, parse, place, refusals, run

PASS = "rpeg-eliminate-dead-stages"
OLD = ("lp_old, clip_low", "lp, clip_low")
"""The clipped loss without a reader of lp_old."""


def without_dead(*changes: tuple[str, str]) -> ModuleOp:
    return run(parse(grpo(*changes)), PASS)


def counts(text: str) -> dict[str, int]:
    step = RpegEliminateDeadStagesPass()
    run(parse(text), step)
    return step.statistics.counts


def test_what_is_needed_stays() -> None:
    module = parse(grpo())
    before = str(module)
    assert str(run(module, PASS)) == before


def test_a_log_prob_that_nothing_reads() -> None:
    text = grpo(OLD).removesuffix("}\n") + (
        "  expect lp_old = lognormal(mean=40ms, cv=0.5)\n"
        "  expect y = lognormal(mean=40, cv=0.5)\n}\n"
    )
    module = run(parse(text), PASS)
    assert names(module).count("logprob") == 1
    assert lines(module) == ["y"]
    assert counts(text) == {"stages removed": 1}


def test_what_only_the_dead_need_goes_too() -> None:
    unread = "lp_t = logprob(teacher, y)\n    kd = kl_loss(y, lp_t, coef=0.5)\n    kl ="
    text = grpo(
        ("kl =", unread),
        ("  data train", '  model teacher = policy("big")\n  data train'),
        ("step i", 'verifier spare = outcome("rule:answer_tag")\n  step i'),
    )
    module = run(parse(text), PASS)
    assert names(module) == names(parse(grpo()))
    assert declared(module) == declared(parse(grpo()))
    assert counts(text) == {
        "stages removed": 1,
        "operations removed": 2,  # the loss, and the reading of the teacher
        "declarations removed": 2,
    }


MORE = ("  data heldout", '  data more = prompts("more.jsonl")\n  data heldout')
SECOND = "q2 = batch({data}, size=2)\n    y2, lp2 = generate(actor@i, q2, max_tokens=4)\n    kl ="


def test_rows_that_nobody_trains_on_are_not_read() -> None:
    text = grpo(MORE, ("kl =", SECOND.format(data="more")))
    module = run(parse(text), PASS)
    assert names(module) == names(parse(grpo()))
    assert "more" not in declared(module)
    assert "more_1" not in str(module)
    assert counts(text)["states removed"] == 1


def test_a_place_in_data_that_others_read_on_from_stays() -> None:
    module = without_dead(("kl =", SECOND.format(data="train")))
    assert names(module).count("generate") == 1
    assert names(module).count("batch") == 2


def test_a_score_that_nothing_reads_is_reported() -> None:
    unread = ("lp_old =", "fmt = score(tagged, y)\n    lp_old =")
    declare = ("step i", 'verifier tagged = outcome("rule:answer_tag")\n  step i')
    module = without_dead(unread, declare)
    assert names(module).count("score") == 2
    assert "tagged" in declared(module)


def test_effects_and_new_weights_stay() -> None:
    copied = "ema_model@i+1 = ema(ema_model@i, actor@i+1, decay=0.9)\n    every"
    module = without_dead(
        ("every", copied), ("  data train", "  model ema_model = policy(actor@0)\n  data train")
    )
    assert names(module)[-4:] == ["ema", "every", "eval", "checkpoint"]


def test_inside_a_region() -> None:
    unread = ("checkpoint()", "checkpoint()\n      lp_late = logprob(ref, y)")
    assert names(without_dead(unread)) == names(parse(grpo()))


def test_a_region_without_a_purpose() -> None:
    idle = "every(steps=2) {\n      lp_late = logprob(ref, y)\n    }\n    every(steps=5)"
    assert names(without_dead(("every(steps=5)", idle))) == names(parse(grpo()))


def test_a_collect_that_nothing_reads() -> None:
    collect = (
        "acc, ys, lps = collect(groups=4, max_rounds=2) {\n      q2 = batch(more, size=4)\n"
        "      ys_, lps_ = generate(actor@i, q2, n=2, max_tokens=4)\n"
        "      accs = score(correct, ys_)\n      keep(accs, ys_, lps_, where=mixed)\n"
        "    }\n    kl ="
    )
    module = without_dead(MORE, ("kl =", collect))
    assert names(module) == names(parse(grpo()))
    assert "more" not in declared(module)


@pytest.mark.parametrize(
    ("stage", "needle", "why"),
    [
        ("lp_ref", "kl_loss(y", "this needs `lp_ref`, and is needed itself"),
        ("actor", "update(actor@i", "it makes the next `actor` and `actor_opt`"),
        ("heldout_acc", "eval(actor@i+1", "eval is there for its effect"),
    ],
)
def test_a_stage_that_has_to_go_and_is_needed(stage: str, needle: str, why: str) -> None:
    text = grpo()
    found = refusals(parse(text), RpegEliminateDeadStagesPass(stages=(stage,)))
    assert f"{place(text, needle)}: {why}" in found


def test_a_reward_is_needed_for_two_reasons() -> None:
    text = grpo()
    assert refusals(parse(text), RpegEliminateDeadStagesPass(stages=("r",))) == [
        f"{place(text, 'score(correct')}: the mean of `r` is reported every step",
        f"{place(text, 'group_advantage(')}: this needs `r`, and is needed itself",
    ]


def test_a_stage_that_does_not_exist() -> None:
    (found,) = refusals(parse(grpo()), RpegEliminateDeadStagesPass(stages=("lp_rev",)))
    assert found.endswith("`lp_rev` is not a stage; did you mean `lp_ref`?")


def test_a_second_run_changes_nothing() -> None:
    module = without_dead(OLD, MORE, ("kl =", SECOND.format(data="more")))
    once = str(module)
    assert str(run(module, PASS)) == once
