"""Hardened pipelines are small, sound, and harder to compute wrongly than what they come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from rpeg.frontend import load
from rpeg.passes.base import pipelines, tidied
from rpeg.tools.verifying.harden import Folders, Hardening, Size
from rpeg.tools.verifying.written import written

FOLDERS = Folders(
    of_source=lambda uri: Path("/models") / uri.rpartition(":")[2],
    perturbed=lambda folder: folder.with_name(f"{folder.name}-perturbed"),
    scoring=lambda folder: folder.with_name(f"{folder.name}-scoring"),
    of_data=lambda uri: f"/data/{uri}",
)

HEAD = """rpeg 0.1
pipeline p {{
  model actor = policy("actor", optim=adamw(lr=1e-6, warmup=20, schedule=cosine))
  {more}
  data train = prompts("rows.jsonl")
  data heldout = prompts("heldout.jsonl")
  verifier right = outcome("rule:exact_match")
  step i < 300 {{
    q = batch(train, size={size})
    y, lp = generate(actor@i, q, n=8, max_tokens=4096)
    r = score(right, y)
    adv = group_advantage(r, baseline=mean, scale=std)
{step}
  }}
}}
"""
PPO = """
    pg = ppo_clip(y, adv, lp, clip_low=0.2, clip_high=0.2)
    actor@i+1 = update(actor@i, pg, agg=token_mean, minibatches={minibatches}, epochs=4)
"""
PLANS = """
  expect y = lognormal(mean=40, cv=0.5, cap=64)
  plan here on "h100-8" {
    pool all = nodes(0..0)
    y on all, par(dp=8)
    r on all
    actor on all, par(dp=8, zero=1), publish(all, mode=reshard)
    acc on all, par(dp=8)
  }
}
"""
EVERY = """
    every(steps=20) {
      acc = eval(actor@i+1, heldout, right, max_tokens=4096)
      checkpoint()
      export(actor@i+1, to="out")
      stop(acc, above=0.5)
    }
"""


def hardened(text: str, divisor: int = 2) -> tuple[str, list[str]]:
    """(the hardened text, the notes); it must be a sound one."""
    loaded = load(text, "p.rpeg")
    assert loaded.module is not None, loaded.diagnostics
    (pipeline,) = pipelines(loaded.module)
    with tidied(loaded.module):
        hardening = Hardening(pipeline, FOLDERS, Size(), divisor)
        hardening.run()
    made, without = written(loaded.module, loaded.sources, "p.rpeg")
    again = load(made, "hardened.rpeg")
    assert again.module is not None, (made, again.diagnostics)
    return made, [*hardening.notes, *without]


def grpo(step: str = PPO.format(minibatches=1), more: str = "", size: int = 64) -> str:
    return HEAD.format(step=step, more=more, size=size)


def test_it_becomes_small_and_exact() -> None:
    text, notes = hardened(grpo())
    assert "step i < 5 {" in text
    assert "batch(train, size=8)" in text
    assert "generate(actor@i, q, n=4, max_tokens=12, dtype=fp32)" in text
    assert "optim=adamw(lr=3e-4, warmup=5, schedule=cosine), dtype=fp32)" in text
    assert "5 steps in fp32" in notes[0]


def test_updates_take_two_minibatches_and_a_kl_term_to_other_weights() -> None:
    text, notes = hardened(grpo())
    assert "minibatches=2" in text and "epochs=2" in text
    assert 'model verify_reference_actor = policy("/models/actor-perturbed", dtype=fp32)' in text
    assert "verify_kl = kl_loss(y, verify_reference_actor_lp, coef=0.2)" in text
    assert "update(actor@i, pg, verify_kl," in text
    assert any("kl_loss" in note for note in notes)


@pytest.mark.parametrize(("size", "divisor", "rows"), [(64, 6, 6), (3, 2, 2), (1, 2, 2), (8, 4, 8)])
def test_every_layout_divides_the_rows(size: int, divisor: int, rows: int) -> None:
    # A size of 1 x 8 samples still makes two minibatches; one of 3 x 8 as well.
    text, _ = hardened(grpo(size=size), divisor)
    assert f"batch(train, size={rows})" in text


@pytest.mark.parametrize(("coef", "kept"), [("0.01", "0.01"), ("0.0", "0.2")])
def test_a_kl_term_of_the_file_stays_and_is_never_zero(coef: str, kept: str) -> None:
    step = f"""
    lp_ref = logprob(ref, y)
    pg = ppo_clip(y, adv, lp, clip_low=0.2, clip_high=0.2)
    kl = kl_loss(y, lp_ref, coef={coef}, estimator=k2)
    actor@i+1 = update(actor@i, pg, kl, agg=token_mean)
"""
    text, notes = hardened(grpo(step, more="model ref = policy(actor@0)"))
    assert f"kl_loss(y, lp_ref, coef={kept}, estimator=k2)" in text
    assert "verify_" not in text
    assert 'model ref = policy("/models/actor-perturbed", dtype=fp32)' in text
    assert any("`ref` has other weights" in note for note in notes)


def test_a_critic_has_a_head_that_is_not_zero() -> None:
    step = """
    lp_ref = logprob(ref, y)
    v = values(critic@i, y)
    rt = kl_penalty(r, lp, lp_ref, coef=0.1)
    raw, ret = gae(rt, v, gamma=1.0, lambda=0.95)
    vl = value_loss(y, ret, v, clip=0.2)
    critic@i+1 = update(critic@i, vl, agg=token_mean)
"""
    critic = "model critic = value(actor@0, optim=adamw(lr=1e-6))\n  model ref = policy(actor@0)"
    text, notes = hardened(grpo(PPO.format(minibatches=1) + step, more=critic))
    assert 'model critic = value("/models/actor-scoring", optim=' in text
    assert any("`critic` has weights of its own, its head's too" in note for note in notes)


def test_another_teacher_keeps_its_weights() -> None:
    step = """
    lp_t = logprob(teacher, y)
    kd = distill(y, lp_t, divergence=reverse_kl)
    actor@i+1 = update(actor@i, kd, agg=token_mean)
"""
    text, _ = hardened(grpo(step, more='model teacher = policy("hf:big")'))
    assert 'model teacher = policy("/models/big", dtype=fp32)' in text


def test_a_loss_that_is_right_for_one_optimizer_step_gets_one() -> None:
    step = """
    pg = policy_gradient(y, adv)
    actor@i+1 = update(actor@i, pg, agg=token_mean)
"""
    text, _ = hardened(grpo(step))
    assert "minibatches" not in text
    assert "verify_kl" in text


def test_what_measures_or_writes_is_left_out() -> None:
    text, notes = hardened(grpo(PPO.format(minibatches=1) + EVERY))
    assert not any(word in text for word in ("every", "eval", "checkpoint", "export", "heldout"))
    assert "left out: checkpoint, eval, export, stop" in notes


def test_an_update_every_few_steps_runs_at_each() -> None:
    step = """
    pg = ppo_clip(y, adv, lp, clip_low=0.2, clip_high=0.2)
    every(steps=10, from=20) {
      actor@i+1 = update(actor@i, pg, agg=token_mean)
      checkpoint()
    }
"""
    text, notes = hardened(grpo(step))
    assert "every(steps=1) {" in text
    assert "checkpoint" not in text
    assert "what runs every few steps runs at each" in notes


def test_supervised_pipelines_need_no_reference() -> None:
    text, _ = hardened(
        """rpeg 0.1
pipeline p {
  model actor = policy("actor", optim=adamw(lr=1e-5))
  data train = demos("rows.jsonl")
  step i < 10 {
    b = batch(train, size=128)
    ce = cross_entropy(b)
    actor@i+1 = update(actor@i, ce, agg=token_mean)
  }
}
"""
    )
    assert "batch(train, size=8)" in text
    assert "minibatches=2" in text
    assert "kl_loss" not in text


def with_plans(text: str) -> str:
    return text.rstrip().removesuffix("}") + PLANS


def test_paths_of_data_are_whole() -> None:
    text, _ = hardened(grpo())
    assert 'data train = prompts("/data/rows.jsonl")' in text


def test_plans_stay_without_lines_of_what_is_left_out() -> None:
    """What is added has a line too: in the layout of the update that reads it."""
    text, notes = hardened(with_plans(grpo(PPO.format(minibatches=1) + EVERY)))
    assert "expect" not in text
    assert not any("is left out" in note for note in notes)
    lines = [line.strip() for line in text.partition("  plan ")[2].splitlines()]
    assert lines == [
        'here on "h100-8" {',
        "pool all = nodes(0..0)",
        "y on all, par(dp=8)",
        "r on all",
        "verify_reference_actor_lp on all, par(dp=8)",
        "actor on all, par(dp=8, zero=1), publish(all, mode=reshard)",
        "}",
        "}",
    ]


def test_a_plan_of_more_processes_than_there_are_rows_is_left_out() -> None:
    wide = "plan wide" + PLANS.partition("plan here")[2].replace("0..0", "0..1")
    text = with_plans(grpo(PPO.format(minibatches=1) + EVERY)).rstrip().removesuffix(
        "}"
    ) + wide.replace("dp=8", "dp=16")
    made, notes = hardened(text)
    assert "plan here" in made and "plan wide" not in made
    (left_out,) = [note for note in notes if "is left out" in note]
    assert left_out.startswith("plan `wide` is left out: a batch of 8 rows does not divide over 16")
