from __future__ import annotations

import pytest
from xdsl.dialects.builtin import ModuleOp, StringAttr

from rpeg.ir.base import RpegOp
from rpeg.ir.ops.fuse import FuseOp
from rpeg.ir.ops.sampling import LogprobOp
from rpeg.ir.stages import stage_name, stages
from rpeg.ir.text.sources import position_of
from rpeg.ir.types.attributes import RecordAttr
from rpeg.passes.rpeg_fuse_inference import RpegFuseInferencePass
from tests.unit.passes.pipelines import grpo, lines, one, parse, place, refusals, run

PASS = "rpeg-fuse-inference"
CRITIC = (
    ("  data train", '  model critic = value("tiny", optim=adamw(lr=1e-3))\n  data train'),
    (
        "    adv = group_advantage(r, baseline=mean, scale=std)\n",
        "    v = values(critic@i, y)\n    rt = kl_penalty(r, lp_old, lp_ref, coef=0.1)\n"
        "    raw, ret = gae(rt, v, gamma=1.0, lambda=0.95)\n    adv = whiten(raw)\n"
        "    vl = value_loss(y, ret, v, clip=0.2)\n"
        "    critic@i+1 = update(critic@i, vl, agg=token_mean)\n",
    ),
)
SECOND = (
    "kl =",
    "y2, lp2 = generate(actor@i, q, max_tokens=4)\n    other = logprob(ref, y2)\n"
    "    kl2 = kl_loss(y2, other, coef=0.1)\n    kl =",
)


def groups(module: ModuleOp) -> list[list[str]]:
    """The names of the fused stages."""
    fused = [op for op in module.walk() if isinstance(op, FuseOp)]
    return [[stage_name(inner) for inner in op.passes] for op in fused]


def fused(*changes: tuple[str, str]) -> list[list[str]]:
    return groups(run(parse(grpo(*changes)), PASS))


def noted(text: str, stage: str, **attributes: StringAttr | RecordAttr) -> ModuleOp:
    """A module with notes on a stage, as a plan's line would leave them."""
    module = parse(text)
    found: RpegOp = stages(next(iter(module.ops)))[stage]
    found.attributes.update(attributes)
    return module


def asking(stage: str, other: str, text: str) -> ModuleOp:
    return noted(text, stage, fuse=RecordAttr.make("fuse", {"with": StringAttr(other)}))


def test_old_policy_and_reference() -> None:
    text = grpo()
    module = run(parse(text), PASS)
    assert groups(module) == [["lp_old", "lp_ref"]]
    made = one(module, FuseOp)
    assert str(position_of(made)) == place(text, "logprob(actor@i")
    assert [r.name_hint for r in made.results] == ["lp_old", "lp_ref"]
    assert str(position_of(one(module, LogprobOp, 1))) == place(text, "logprob(ref")


def test_values_too_and_what_stands_between_stays_behind() -> None:
    assert fused(*CRITIC) == [["lp_old", "lp_ref", "v"]]


def test_each_to_its_trajectories() -> None:
    assert fused(SECOND) == [["lp_old", "lp_ref"]]


def test_weights_that_are_made_later() -> None:
    late = "    every(steps=5) {"
    assert fused((late, "    new = logprob(actor@i+1, y)\n" + late)) == [["lp_old", "lp_ref"]]


def test_one_alone_is_no_group() -> None:
    assert (
        fused(("lp_old, clip_low", "lp, clip_low"), ("    lp_old = logprob(actor@i, y)\n", ""))
        == []
    )


@pytest.mark.parametrize(
    "note",
    [
        {"pool": StringAttr("other")},
        {"mb": RecordAttr.make("mb", {})},
        {"par": RecordAttr.make("par", {})},
    ],
    ids=str,
)
def test_other_processes_or_micro_batches(note: dict[str, StringAttr | RecordAttr]) -> None:
    assert groups(run(noted(grpo(), "lp_ref", **note), PASS)) == []


def test_a_bound_on_the_update_is_the_model_s() -> None:
    bound = RecordAttr.make("mb", {})
    assert groups(run(noted(grpo(), "actor", mb=bound), PASS)) == []


def test_lines_of_plans_stay() -> None:
    text = grpo().removesuffix("}\n") + (
        '  plan one on "h100-1" {\n    pool all = gpus(0..0)\n'
        "    pool cpu = cores(0..0, per_node=4)\n"
        "    y on all, par(dp=1), engine(name=vllm)\n    r on cpu\n    lp_old on all, par(dp=1)\n"
        "    lp_ref on all, par(dp=1), fuse(lp_old)\n"
        "    actor on all, par(dp=1), publish(all, mode=reshard)\n"
        "    heldout_acc on all, par(dp=1), engine(name=vllm)\n  }\n}\n"
    )
    module = run(parse(text), PASS)
    assert "lp_ref" in lines(module)
    assert groups(module) == [["lp_old", "lp_ref"]]


def test_what_a_plan_asks_for_is_done() -> None:
    module = run(asking("lp_ref", "lp_old", grpo()), PASS)
    assert groups(module) == [["lp_old", "lp_ref"]]
    assert "fuse" not in one(module, LogprobOp, 1).attributes


def test_what_a_plan_asks_for_and_can_t_be() -> None:
    text = grpo(SECOND)
    at = place(text, "logprob(ref, y2)")
    assert refusals(asking("other", "lp_old", text), PASS) == [
        f"{at}: `other` reads the trajectories `y2`, `lp_old` reads `y`",
        f"{at}: `other` reads what is made after `lp_old` has run",
    ]
    found = refusals(asking("lp_ref", "y", grpo()), PASS)
    assert found[0].endswith("`y` is not a forward pass of a model over trajectories")


def test_fusing_into_an_update_is_not_this_one_s() -> None:
    module = run(asking("lp_old", "actor", grpo()), PASS)
    assert groups(module) == [["lp_old", "lp_ref"]]


def test_statistics() -> None:
    step = RpegFuseInferencePass()
    run(parse(grpo(SECOND)), step)
    assert step.statistics.counts == {
        "passes over the data before": 3,
        "passes over the data after": 2,
    }


def test_a_second_run_changes_nothing() -> None:
    module = run(parse(grpo()), PASS)
    once = str(module)
    assert str(run(module, PASS)) == once


def test_the_program() -> None:
    passes = ("rpeg-annotate-parallelism", PASS, "rpeg-schedule", "rpeg-lower-to-programs")
    module = run(parse(grpo()), *passes)
    assert '%lp_old, %lp_ref = rrt.call "forward"(%y' in str(module)


def test_values_go_with_log_probs() -> None:
    passes = ("rpeg-annotate-parallelism", PASS, "rpeg-schedule", "rpeg-lower-to-programs")
    module = run(parse(grpo(*CRITIC)), *passes)
    assert '%v = rrt.call "forward"(%y_1, %actor, %ref, %critic)' in str(module)
