"""A step that trains an actor and a critic, the actor from some step on: schedule and program."""

from __future__ import annotations

from pathlib import Path

from xdsl.dialects.builtin import ArrayAttr, ModuleOp

from rpeg.ir.rrt.calls import CallOp
from rpeg.ir.rrt.program import EveryOp
from rpeg.ir.rsched import SequenceOp
from rpeg.passes.rpeg_annotate_parallelism import RpegAnnotateParallelismPass as Annotate
from tests.unit.passes.pipelines import one, parse, place, refusals, run

PPO = """rpeg 0.1
pipeline p {
  model actor = policy("tiny", optim=adamw(lr=1e-3), dtype=fp32)
  model critic = value(actor@0, optim=adamw(lr=1e-3), dtype=fp32)
  model ref = policy("other", dtype=fp32)
  data train = prompts("rows.jsonl")
  verifier correct = outcome("rule:exact_match")
  state kl = scalar(init=0.02)
  step i < 10 {
    q = batch(train, size=4)
    y, lp = generate(actor@i, q, n=2, max_tokens=8, dtype=fp32)
    r = score(correct, y)
    lp_old = logprob(actor@i, y)
    lp_ref = logprob(ref, y)
    v = values(critic@i, y)
    kl@i+1 = kl_controller(kl@i, lp_old, lp_ref, target=0.1, horizon=100)
    rt = kl_penalty(r, lp_old, lp_ref, coef=kl@i)
    raw, ret = gae(rt, v)
    adv = whiten(raw)
    pg = ppo_clip(y, adv, lp_old, clip_low=0.2, clip_high=0.2)
    vl = value_loss(y, ret, v, clip=0.2)
    critic@i+1 = update(critic@i, vl, agg=token_mean)
    every(steps=1, from=2) {
      actor@i+1 = update(actor@i, pg, agg=token_mean)
    }
    every(steps=5) {
      checkpoint()
    }
  }
}
"""
PASSES = ("rpeg-annotate-parallelism", "rpeg-schedule", "rpeg-lower-to-programs")


def calls(module: ModuleOp, callee: str) -> list[CallOp]:
    return [op for op in module.walk() if isinstance(op, CallOp) and op.callee.data == callee]


def trained(update: CallOp) -> str:
    assert update.receiver is not None
    return update.receiver.name_hint or ""


def test_old_states_are_read_before_they_are_replaced() -> None:
    sequence = one(run(parse(PPO), *PASSES[:2]), SequenceOp)
    assert isinstance(sequence, SequenceOp)
    order = list(sequence.labels)
    assert order.index("rt") < order.index("kl"), "the penalty takes this step's coefficient"
    assert order.index("v") < order.index("critic")
    assert order.index("every_1") < order.index("publish_actor"), "engines get what it trained"
    assert order[-1] == "every_5"


def test_the_program() -> None:
    module = run(parse(PPO), *PASSES)
    (penalty,) = calls(module, "kl_penalty")
    assert penalty.named["coef"].name_hint == "kl"
    inside, outside = sorted(calls(module, "update"), key=trained)
    assert isinstance(inside.parent_op(), EveryOp)
    assert not isinstance(outside.parent_op(), EveryOp)
    assert [call.parent_op() is outside.parent_op() for call in calls(module, "publish")] == [
        False,  # before the loop
        True,
    ]
    (initial,) = calls(module, "InitialWeights")
    (critic,) = [op for op in calls(module, "Trainer") if op.results[0].name_hint == "critic"]
    assert critic.named["source"] is initial.results[0]


def test_an_actor_and_a_critic_of_unlike_widths() -> None:
    text = (Path(__file__).parents[3] / "examples" / "ppo_critic.rpeg").read_text(encoding="utf-8")
    module = run(parse(text), Annotate(plan="node"), *PASSES[1:])
    hints = [op.results[0].name_hint for op in calls(module, "groups")]
    assert hints[0] == "groups_dp8zero1full", "batches are split as what samples"
    held = {op.results[0].name_hint: op.named["groups"] for op in calls(module, "Trainer")}
    assert held["critic"].name_hint == "groups_dp8zero1full"
    assert held["actor"].name_hint == "groups_dp4tp2zero1spfull"
    (whiten,), (controller,) = calls(module, "whiten"), calls(module, "kl_controller")
    assert whiten.named["groups"] is controller.named["groups"] is held["critic"]


def test_models_of_other_sources_read_the_same_tokens() -> None:
    (check,) = calls(run(parse(PPO), *PASSES), "share_tokenizer")
    assert [value.name_hint for value in check.things] == ["actor", "ref"]


def test_what_a_region_makes_is_not_sampled_from_in_it() -> None:
    text = PPO.replace(
        "update(actor@i, pg, agg=token_mean)\n",
        "update(actor@i, pg, agg=token_mean)\n"
        "      acc = eval(actor@i+1, train, correct, max_tokens=8)\n",
    )
    assert refusals(parse(text), *PASSES) == [
        f"{place(text, 'eval(')}: eval of weights that the same region makes does not compile yet: "
        "move it into an every below"
    ]


def test_batches_in_regions_do_not_compile() -> None:
    text = PPO.replace("      actor@i+1 =", "      q2 = batch(train, size=4)\n      actor@i+1 =")
    assert refusals(parse(text), *PASSES) == [
        f"{place(text, 'every(steps=1')}: batches inside every do not compile yet: move "
        "them out of it"
    ]


def test_a_greedy_baseline_is_measured_and_not_reported() -> None:
    greedy = "y0, lp0 = generate(actor@i, q, max_tokens=8, temperature=0.0, dtype=fp32)"
    text = PPO.replace("    r = score", f"    {greedy}\n    r0 = score(correct, y0)\n    r = score")
    text = text.replace("raw, ret", "adv0 = remax_advantage(r, r0)\n    raw, ret")
    module = run(parse(text.replace("whiten(raw)", "whiten(adv0)")), *PASSES)
    assert [list(op.named) for op in calls(module, "report")] == [["r"]]
    assert [list(op.named) for op in calls(module, "measure")] == [["r0"]]
    assert len(calls(module, "TrajectoryBuffer")) == 2


def _one_trunk() -> str:
    lines = [line for line in PPO.splitlines(keepends=True) if "critic@i+1" not in line]
    text = "".join(line for line in lines if "model critic" not in line)
    text = text.replace("actor = policy", "actor = actor_critic").replace("critic@i,", "actor@i,")
    return text.replace("update(actor@i, pg,", "update(actor@i, pg, vl,")


def test_one_trunk_is_one_pass_and_one_update() -> None:
    module = run(parse(_one_trunk()), "rpeg-fuse-inference", *PASSES)
    (forward,) = calls(module, "forward")
    assert [value.name_hint for value in forward.things[1:]] == ["actor", "ref", "actor"]
    asked = forward.settings["asked"]
    assert isinstance(asked, ArrayAttr)
    assert [each.data for each in asked] == ["logprob", "logprob", "values"]
    (update,) = calls(module, "update")
    assert len(update.things) == 2


def test_a_trunk_shared_in_part_does_not_compile() -> None:
    text = _one_trunk().replace('("tiny", optim', '("tiny", shared_layers=1, optim')
    assert refusals(parse(text), *PASSES) == [
        f"{place(text, 'actor =')}: `actor`: shared_layers does not compile yet: leave it "
        "out, and both heads share the trunk"
    ]
