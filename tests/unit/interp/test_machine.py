"""Whole pipelines, by properties that can be checked by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rpeg.interp import EXACT, Interpreter, InterpreterError, Replay, World, compare
from tests.unit.interp.pipelines import THINGS, grpo, parse

Interpret = Callable[..., Interpreter]

SAMPLE = """
    q = batch(train, size=4)
    y, lp = generate(actor@i, q, n=4, max_tokens=6, dtype=fp32)
    short = score(brief, y)
    adv = group_advantage(short, baseline=mean, scale=std)
"""


def test_grpo_learns_what_it_is_rewarded_for(interpret: Interpret) -> None:
    record = interpret(grpo(coef=0.0, minibatches=1)).run()
    rewards = [float(step.rewards["short"].mean()) for step in record.steps]
    assert len(rewards) == 5
    assert rewards[-1] > rewards[0] + 0.1  # each step samples anew, with the weights it has made
    assert all(step.trajectories["y"].versions.max() == i for i, step in enumerate(record.steps))


def test_runs_repeat_and_seeds_matter(interpret: Interpret) -> None:
    first, second = interpret(grpo()).run(2), interpret(grpo()).run(2)
    assert compare(first, second) == EXACT
    assert torch.equal(
        first.steps[1].trajectories["y"].tokens, second.steps[1].trajectories["y"].tokens
    )
    assert not torch.equal(
        first.steps[0].trajectories["y"].tokens,
        interpret(grpo(), seed=1).run(1).steps[0].trajectories["y"].tokens,
    )


def test_recomputed_log_probs_are_the_sampled_ones(interpret: Interpret) -> None:
    for step in interpret(grpo()).run(3).steps:
        torch.testing.assert_close(step.sampled["y"], step.logprobs["lp_old"])


def test_the_reference_stays(interpret: Interpret) -> None:
    steps = interpret(grpo()).run(2).steps
    assert torch.equal(steps[0].logprobs["lp_ref"], steps[0].logprobs["lp_old"])
    assert float((steps[1].logprobs["lp_ref"] - steps[1].logprobs["lp_old"]).abs().max()) > 1e-3


def test_models_start_from_judges_and_judges_from_models(interpret: Interpret) -> None:
    """All of them have the actor's first weights."""
    judge = 'model judge = generative_reward(actor@0, template="{response}=", max_tokens=3)\n'
    text = (
        SAMPLE.replace("score(brief, y)", "score(judge, y)")
        + """
    lp_ref = logprob(ref, y)
    pg = policy_gradient(y, adv)
    kl = kl_loss(y, lp_ref, coef=0.1)
    actor@i+1 = update(actor@i, pg, kl, agg=token_mean)
"""
    )
    train = '\n  data train = prompts("rows.jsonl")'
    module = parse(text, more=f"{judge}  model ref = policy(judge@0){train}")
    first = interpret(module).run(1).steps[0]
    torch.testing.assert_close(first.logprobs["lp_ref"], first.sampled["y"])
    assert first.rewards["short"].shape == (16,)


@pytest.mark.parametrize(
    "other",
    [
        grpo(coef=0.4),
        grpo(minibatches=1),
        grpo(epochs=2),
        grpo(agg="seq_mean_token_mean"),
        grpo(agg="constant(tokens=6)"),
    ],
    ids=["coef", "minibatches", "epochs", "agg", "constant"],
)
def test_every_setting_of_the_update_is_seen(other: object, interpret: Interpret) -> None:
    record = interpret(grpo()).run(2)
    changed = interpret(other, oracle=Replay(record)).run(2)
    a, b = ([*step.grad_norms["actor"]] for step in (record.steps[0], changed.steps[0]))
    assert a != pytest.approx(b, rel=1e-3)


def test_one_optimizer_step_of_grpo_is_a_policy_gradient(interpret: Interpret) -> None:
    clipped = parse(
        SAMPLE
        + """
    pg = ppo_clip(y, adv, lp, clip_low=0.2, clip_high=0.2)
    actor@i+1 = update(actor@i, pg, agg=token_mean)""",
        more=THINGS,
    )
    plain = parse(
        SAMPLE
        + """
    pg = policy_gradient(y, adv)
    actor@i+1 = update(actor@i, pg, agg=token_mean)""",
        more=THINGS,
    )
    record = interpret(clipped).run(3)
    replayed = interpret(plain, oracle=Replay(record)).run(3)
    assert compare(record, replayed).weights < 1e-6


def test_half_of_the_batch_is_trained_after_the_first_of_two_optimizer_steps(
    interpret: Interpret,
) -> None:
    step = interpret(grpo(minibatches=2)).run(1).steps[0]
    first, second = (step.trained_rows[f"actor/{k}"] for k in range(2))
    assert sorted([*first.tolist(), *second.tolist()]) == list(range(16))
    assert first.tolist() != list(range(8))  # shuffled
    for k, moves in ((0, False), (1, True)):
        old = step.logprobs["lp_old"][step.trained_rows[f"actor/{k}"]]
        gap = (step.trained[f"actor/{k}/logprob"] - old).abs().amax(dim=1)
        assert bool((gap > 1e-4).all()) == moves


def test_an_update_leaves_the_old_version_readable(interpret: Interpret) -> None:
    module = parse(
        SAMPLE
        + """
    before = logprob(actor@i, y)
    pg = policy_gradient(y, adv)
    actor@i+1 = update(actor@i, pg, agg=token_mean)
    after = logprob(actor@i, y)""",
        more=THINGS,
    )
    logprobs = interpret(module).run(1).steps[0].logprobs
    assert torch.equal(logprobs["before"], logprobs["after"])


def test_stale_weights_are_those_of_k_steps_ago(interpret: Interpret) -> None:
    module = parse(
        """
    q = batch(train, size=4)
    y, lp = generate(actor@i-2, q, n=4, max_tokens=6, dtype=fp32)
    short = score(brief, y)
    adv = group_advantage(short, baseline=mean, scale=std)
    prox = logprob(actor@i, y)
    w = importance(prox, lp)
    pg = ppo_clip(y, adv, prox, w, clip_low=0.2, clip_high=0.2)
    actor@i+1 = update(actor@i, pg, agg=token_mean)""",
        more=THINGS,
    )
    steps = interpret(module).run(4).steps
    versions = [int(step.trajectories["y"].versions.max()) for step in steps]
    assert versions == [0, 0, 0, 1]
    gaps = [float((s.sampled["y"] - s.logprobs["prox"]).abs().max()) for s in steps]
    assert gaps[0] < 1e-5
    assert min(gaps[1:]) > 1e-3


def test_regions_run_when_they_are_due(interpret: Interpret) -> None:
    module = parse(
        SAMPLE
        + """
    pg = policy_gradient(y, adv)
    every(steps=1, from=2) {
      actor@i+1 = update(actor@i, pg, agg=token_mean)
    }
    every(steps=2) {
      held = eval(actor@i+1, train, brief, max_tokens=4, limit=5)
      checkpoint()
      export(actor@i+1, to="out/x")
      stop(held, above=-2.0)
    }""",
        more=THINGS,
    )
    steps = interpret(module).run().steps
    assert [list(step.grad_norms) for step in steps] == [[], []]
    events = ["checkpoint", "export actor to out/x", "stop"]
    assert [step.events for step in steps] == [[], events]
    assert -1.0 <= steps[1].metrics["held"] <= 0.0


def test_eval_is_greedy_over_the_first_rows(interpret: Interpret) -> None:
    module = parse(
        """
    q = batch(train, size=5, order=sequential)
    y, lp = generate(actor@i, q, n=1, max_tokens=6, temperature=0.0, dtype=fp32)
    short = score(brief, y)
    b = batch(demos, size=2)
    ce = cross_entropy(b)
    actor@i+1 = update(actor@i, ce, agg=token_mean)
    every(steps=1) {
      held = eval(actor@i, train, brief, max_tokens=6, limit=5)
      val = eval_loss(actor@i, demos)
    }""",
        more=THINGS + 'data demos = demos("rows.jsonl", limit=2)',
    )
    step = interpret(module).run(1).steps[0]
    assert step.metrics["held"] == pytest.approx(float(step.rewards["short"].mean()))
    assert step.metrics["val"] == pytest.approx(step.losses["actor"][0])


def test_supervision_lowers_the_loss(interpret: Interpret) -> None:
    module = parse(
        """
    b = batch(demos, size=6)
    ce = cross_entropy(b)
    actor@i+1 = update(actor@i, ce, agg=token_mean)
    every(steps=1) {
      val = eval_loss(actor@i+1, demos)
    }""",
        optim="adamw(lr=1e-2, warmup=2, schedule=cosine)",
        more='data demos = demos("rows.jsonl")',
        steps=12,
    )
    losses = [step.metrics["val"] for step in interpret(module).run().steps]
    assert losses[-1] < 0.7 * losses[0]


PPO = """
    q = batch(train, size=4)
    y, lp = generate(actor@i, q, n=2, max_tokens=6, dtype=fp32)
    short = score(brief, y)
    lp_old = logprob(actor@i, y)
    lp_ref = logprob(ref, y)
    v = values(critic@i, y)
    rt = kl_penalty(short, lp_old, lp_ref, coef=beta@i)
    raw, ret = gae(rt, v, gamma=1.0, lambda=0.9)
    adv = whiten(raw)
    w = importance(lp_old, lp)
    pg = cispo(y, adv, lp_old, w, clip_high=0.3)
    ent = entropy_bonus(y, coef=0.01)
    vl = value_loss(y, ret, v, clip=100.0)
    critic@i+1 = update(critic@i, vl, agg=token_mean, epochs=2)
    actor@i+1 = update(actor@i, pg, ent, agg=seq_mean_token_sum, epochs=2)
"""


def test_a_critic_learns_returns(interpret: Interpret) -> None:
    module = parse(
        PPO,
        more=THINGS
        + """
  model critic = value("tiny", dtype=fp32, optim=adamw(lr=1e-2))
  state beta = scalar(init=0.1)
""",
    )
    record = interpret(module).run()
    first, last = (record.steps[k].losses["critic"][0] for k in (0, -1))
    assert last < 0.5 * first
    assert record.weights.keys() == {"actor", "critic"}
    assert len(record.steps[0].grad_norms["actor"]) == 2


def test_reinforce_with_rewards_per_token(interpret: Interpret) -> None:
    module = parse(
        """
    q = batch(train, size=4)
    y, lp = generate(actor@i, q, n=2, max_tokens=6, dtype=fp32)
    short = score(brief, y)
    lp_ref = logprob(ref, y)
    rt = kl_penalty(short, lp, lp_ref, coef=0.5)
    ret = returns(rt)
    adv = whiten(ret)
    total = sum_tokens(rt)
    rloo = group_advantage(total, baseline=leave_one_out, scale=none)
    pg = policy_gradient(y, adv)
    more = policy_gradient(y, rloo)
    kd = distill(y, lp_ref, divergence=forward_kl)
    actor@i+1 = update(actor@i, pg, more, kd, agg=token_mean)""",
        more=THINGS,
    )
    record = interpret(module).run(2)
    assert all(step.grad_norms["actor"][0] > 0 for step in record.steps)


def test_averages_and_copies(interpret: Interpret) -> None:
    module = parse(
        SAMPLE
        + """
    pg = policy_gradient(y, adv)
    actor@i+1 = update(actor@i, pg, agg=token_mean)
    slow@i+1 = ema(slow@i, actor@i+1, decay=0.75)
    twin@i+1 = copy(actor@i+1)""",
        more=THINGS
        + """
  model slow = policy(actor@0, dtype=fp32)
  model twin = policy(actor@0, dtype=fp32)
""",
    )
    weights = interpret(module).run(1).weights
    for name, new in weights["actor"].items():
        assert torch.equal(weights["twin"][name], new)
        if not name.endswith("norm.weight"):
            continue
        expected = 0.75 * torch.ones_like(new) + 0.25 * new  # fresh norms are ones
        torch.testing.assert_close(weights["slow"][name], expected)


CONTROLLED = (
    SAMPLE
    + """
    lp_old = logprob(actor@i, y)
    lp_ref = logprob(other, y)
    rt = kl_penalty(short, lp_old, lp_ref, coef=kl@i)
    ret = returns(rt)
    white = whiten(ret)
    pg = ppo_clip(y, white, lp_old, clip_low=0.2, clip_high=0.2)
    actor@i+1 = update(actor@i, pg, agg=token_mean)
    kl@i+1 = kl_controller(kl@i, lp_old, lp_ref, target=1e-6, horizon=HORIZON)"""
)


def test_a_controller_moves_the_coefficient_of_the_next_step(interpret: Interpret) -> None:
    """The policy leaves its reference after step 0, so that only later steps feel the penalty."""
    more = THINGS + "  model other = policy(actor@0, dtype=fp32)\n  state kl = scalar(init=0.5)\n"
    quick, slow = (
        interpret(parse(CONTROLLED.replace("HORIZON", horizon), more=more)).run(3).steps
        for horizon in ("10", "1000000000")
    )
    assert quick[0].grad_norms == slow[0].grad_norms
    assert quick[2].grad_norms != slow[2].grad_norms


@pytest.mark.parametrize(
    ("step", "more", "message"),
    [
        (
            SAMPLE.replace("actor@i, q", "actor@i, q, find"),
            'tool find = function("python:a:b")',
            r"rpeg.tool: `python:a:b` runs code of yours: allow it with RPEG_ALLOW_PYTHON=1",
        ),
    ],
    ids=["python"],
)
def test_what_it_does_not_run_is_refused_by_name(
    step: str, more: str, message: str, interpret: Interpret
) -> None:
    update = (
        "\n    pg = policy_gradient(y, adv)\n    actor@i+1 = update(actor@i, pg, agg=token_mean)"
    )
    module = parse(step if "update" in step else step + update, more=THINGS + more)
    with pytest.raises(InterpreterError, match=message):
        interpret(module).run(1)


def test_an_unknown_pipeline_is_named() -> None:
    with pytest.raises(InterpreterError, match="no pipeline `x`; there is `p`"):
        Interpreter(grpo(), "x", World(Path()))


def test_greedy_completions_follow_the_last_weights(interpret: Interpret) -> None:
    machine = interpret(grpo())
    record = machine.run(2)
    found = machine.greedy(record)["y"]
    assert found.tokens.shape == (4, 6)
    assert bool((found.gaps[found.tokens >= 0] >= 0).all())
    record.weights["actor"] = {n: -t for n, t in record.weights["actor"].items()}
    assert not torch.equal(machine.greedy(record)["y"].tokens, found.tokens)
