from __future__ import annotations

import pytest
from xdsl.dialects.builtin import ModuleOp

from rpeg.ir.ops.losses import PpoClipOp
from rpeg.ir.ops.sampling import LogprobOp, OnPolicyLogprobOp
from rpeg.ir.text.sources import position_of
from tests.unit.passes.pipelines import grpo, lines, one, parse, place, run

PASS = "rpeg-eliminate-old-logprob"
PG = "    pg = ppo_clip(y, adv, lp_old, clip_low=0.2, clip_high=0.2)\n"


def eliminated(module: ModuleOp) -> bool:
    run(module, PASS)
    made = sum(isinstance(op, OnPolicyLogprobOp) for op in module.walk())
    old = [
        op for op in module.walk() if isinstance(op, LogprobOp) and "actor" in str(op.weights.type)
    ]
    assert made + len(old) == 1 or made == 0
    return made > 0


@pytest.mark.parametrize(
    "loss",
    [PG, PG.replace("ppo_clip", "cispo").replace("clip_low=0.2, ", "")],
    ids=["ppo_clip", "cispo"],
)
def test_one_optimizer_step(loss: str) -> None:
    text = grpo((PG, loss))
    module = parse(text)
    assert eliminated(module)
    made = one(module, OnPolicyLogprobOp)
    assert str(position_of(made)) == place(text, "logprob(actor@i, y)")
    assert [use.operation.name for use in made.results[0].uses] == [
        f"rpeg.loss.{loss.split('=')[1].split('(')[0].strip()}"
    ]


def test_two_losses_share_one() -> None:
    both = PG + PG.replace("pg =", "pg2 =").replace("0.2)", "0.3)")
    module = parse(grpo((PG, both), ("update(actor@i, pg,", "update(actor@i, pg, pg2,")))
    assert eliminated(module)
    losses = [op for op in module.walk() if isinstance(op, PpoClipOp)]
    assert len({op.old for op in losses}) == 1


KEPT = {
    "several minibatches": [("agg=token_mean)", "agg=token_mean, minibatches=2)")],
    "several epochs": [("agg=token_mean)", "agg=token_mean, epochs=2)")],
    "replayed routing": [
        ("dtype=fp32)\n    r", "dtype=fp32, routing=record)\n    r"),
        ("agg=token_mean)", "agg=token_mean, routing=replay)"),
    ],
    "the sampled log-probs": [("lp_old, clip_low", "lp, clip_low")],
    "another reader": [
        (PG, "    w = importance(lp_old, lp)\n" + PG.replace("lp_old,", "lp_old, w,"))
    ],
    "an unread loss": [("update(actor@i, pg, kl,", "update(actor@i, kl,")],
}


@pytest.mark.parametrize("changes", KEPT.values(), ids=KEPT)
def test_it_stays(changes: list[tuple[str, str]]) -> None:
    module = parse(grpo(*changes))
    assert not eliminated(module)


def test_stale_trajectories() -> None:
    window = ("generate(actor@i, ", "generate(actor@[i-1..i], ")
    weighted = "    w = importance(lp_old, lp)\n" + PG.replace("lp_old,", "lp_old, w,")
    allow = ("step i", "allow bounded_async(staleness=1)\n  step i")
    assert not eliminated(parse(grpo(window, allow, (PG, weighted))))


def test_lines_about_it_go() -> None:
    text = grpo().removesuffix("}\n") + (
        '  plan one on "h100-1" {\n    pool all = gpus(0..0)\n'
        "    pool cpu = cores(0..0, per_node=4)\n"
        "    y on all, par(dp=1), engine(name=vllm)\n    r on cpu\n    lp_old on all, par(dp=1)\n"
        "    lp_ref on all, par(dp=1)\n    actor on all, par(dp=1), publish(all, mode=reshard)\n"
        "    heldout_acc on all, par(dp=1), engine(name=vllm)\n  }\n}\n"
    )
    module = parse(text)
    assert "lp_old" in lines(module)
    run(module, PASS)
    assert lines(module) == ["y", "r", "lp_ref", "actor", "heldout_acc"]


def test_a_second_run_changes_nothing() -> None:
    module = parse(grpo())
    once = str(run(module, PASS))
    assert str(run(module, PASS)) == once
