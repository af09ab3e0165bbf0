"""Rewrites that change the execution only are held to the numbers on the same trajectories."""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Attribute, Operation

from rpeg.interp.errors import InterpreterError
from rpeg.ir.ops.losses import KlLossOp
from rpeg.ir.ops.sampling import LogprobOp
from rpeg.ir.ops.updates import UpdateOp
from rpeg.ir.text.diagnostics import DiagnosticsError
from rpeg.ir.types.attributes import RecordAttr, plain
from rpeg.passes import PASSES, rpeg_canonicalize
from rpeg.passes.base import RpegPass
from tests.unit.interp.meaning import Interpret, differences, execute, rewritten
from tests.unit.interp.pipelines import GRPO, THINGS, grpo, parse
from tests.unit.interp.steps import example, steps

LOADED = {name: cast(type[RpegPass], load()) for name, load in PASSES.items()}
LOWERING = ("rpeg-annotate-parallelism", "rpeg-schedule", "rpeg-lower-to-programs")
"""What the interpreter does not run afterwards: programs of these are held to recordings."""
KEEPING = [name for name, cls in LOADED.items() if cls.KIND == "X" and name not in LOWERING]


def made(name: str) -> RpegPass:
    return LOADED[name]()


# ---- what they keep


UNREAD = ("    pg =", "    unread = logprob(ref, y)\n    pg =")
TWIN = (
    ("    pg =", "    twin = logprob(ref, y)\n    pg ="),
    ("kl_loss(y, lp_ref", "kl_loss(y, twin"),
)
CASES = {
    "rpeg-canonicalize": grpo(*TWIN),
    "rpeg-eliminate-old-logprob": grpo(minibatches=1),
    "rpeg-eliminate-reference": grpo(coef=0.0),
    "rpeg-eliminate-dead-stages": grpo(UNREAD),
    "rpeg-fuse-inference": grpo(),
}


def test_every_pass_has_a_case() -> None:
    assert sorted(CASES) == sorted(KEEPING)


@pytest.mark.parametrize("name", CASES)
def test_numbers_stay(name: str, interpret: Interpret) -> None:
    module = CASES[name]
    other = rewritten(module, made(name))
    assert str(other) != str(module)
    assert differences(module, other, interpret) == []


def test_numbers_stay_under_all_passes(interpret: Interpret) -> None:
    module = grpo(*TWIN, coef=0.0, minibatches=1)
    other = rewritten(module, *map(made, KEEPING))
    assert "logprob" in str(module) and "rpeg.logprob" not in str(other)
    assert differences(module, other, interpret) == []


@pytest.mark.parametrize(
    "name",
    [
        "async_grpo_alps64",
        "grpo_countdown",
        "gspo_moe",
        "on_policy_distillation",
        "ppo_critic",
        "ppo_shared_trunk",
        "remax",
        "reinforce_pp",
        "rloo",
        "sort_digits:warmup",
    ],
)
def test_examples(name: str, interpret: Interpret) -> None:
    _held(example(name), interpret)


@settings(
    max_examples=2,
    deadline=None,
    phases=[Phase.generate],
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps())
def test_random_steps(interpret: Interpret, module: ModuleOp) -> None:
    _held(module, interpret)


def _held(module: ModuleOp, interpret: Interpret) -> None:
    """Each pass alone, and all in turn."""
    first = execute(module, interpret)
    for names in [*([name] for name in KEEPING), KEEPING]:
        other = rewritten(module, *map(made, names))
        if str(other) != str(module):
            assert differences(module, other, interpret, first) == [], names


# ---- what would be found if they did not


def without(name: str, condition: str) -> RpegPass:
    """The pass, with one of the conditions forgotten."""
    cls = LOADED[name]
    kept = tuple(c for c in cls.LEGALITY if c.name != condition)
    assert len(kept) == len(cls.LEGALITY) - 1
    return cast(RpegPass, type(f"Broken{cls.__name__}", (cls,), {"LEGALITY": kept})())


ONLY_KL = parse(
    """
    q = batch(train, size=4)
    y, lp = generate(actor@i, q, n=4, max_tokens=6, dtype=fp32)
    lp_ref = logprob(ref, y)
    kl = kl_loss(y, lp_ref, coef=0.0)
    actor@i+1 = update(actor@i, kl, agg=token_mean)
""",
    more=THINGS,
)
SPREAD = grpo(
    ("    adv = group_advantage(r, baseline=mean, scale=std)\n", ""),
    (
        "    pg =",
        "    rt = kl_penalty(r, lp_old, lp_ref, coef=0.0)\n    whole = sum_tokens(rt)\n"
        "    adv = group_advantage(whole, baseline=mean, scale=std)\n    pg =",
    ),
)
WEIGHTED = grpo(
    ("    pg =", "    w = importance(lp_old, lp)\n    pg ="),
    ("adv, lp_old,", "adv, lp_old, w,"),
    minibatches=1,
)
CHECKED = grpo(("    pg =", "    every(steps=2) {\n      checkpoint()\n    }\n    pg ="))
SCORED = grpo(("    r = weighted", "    also = score(long, y)\n    r = weighted"))
AVERAGED = parse(
    GRPO.format(coef=0.5, agg="token_mean", epochs=1, minibatches=2)
    + "    mean@i+1 = ema(mean@i, actor@i+1, decay=0.9)\n",
    more=THINGS + "  model mean = policy(actor@0, dtype=fp32)\n",
)
TWO = grpo(
    (
        "    short =",
        "    y2, lp2 = generate(actor@i, q, n=4, max_tokens=3, dtype=fp32, seed=1)\n    short =",
    ),
    (
        "    pg =",
        "    lp2_ref = logprob(ref, y2)\n    kl2 = kl_loss(y2, lp2_ref, coef=0.3)\n    pg =",
    ),
)
LATE = grpo(
    ("minibatches=2)\n", "minibatches=2)\n    lp_new = logprob(actor@i+1, y)\n"),
)


def noted(attribute: str, held: Attribute) -> ModuleOp:
    """The GRPO step, with a note on the reference's log-probs as a plan's line would leave it."""
    module = grpo()
    op = [op for op in module.walk() if isinstance(op, LogprobOp)][-1]
    op.attributes[attribute] = held
    return module


BUGS = {
    ("rpeg-eliminate-old-logprob", "clipped losses only"): WEIGHTED,
    ("rpeg-eliminate-old-logprob", "one optimizer step"): grpo(),
    ("rpeg-eliminate-reference", "weight 0"): grpo(),
    ("rpeg-eliminate-reference", "rewards per token"): SPREAD,
    ("rpeg-eliminate-reference", "another loss"): ONLY_KL,
    ("rpeg-eliminate-dead-stages", "no effect"): CHECKED,
    ("rpeg-eliminate-dead-stages", "no new state"): AVERAGED,
    ("rpeg-fuse-inference", "forward pass"): grpo(),
    ("rpeg-fuse-inference", "same trajectories"): TWO,
    ("rpeg-fuse-inference", "same processes"): noted("pool", StringAttr("other")),
    ("rpeg-fuse-inference", "same micro-batches"): noted(
        "mb", RecordAttr.make("mb", {"seqs": plain(1)})
    ),
    ("rpeg-fuse-inference", "ready"): LATE,
    ("rpeg-eliminate-dead-stages", "not reported"): SCORED,
}
"""(pass, a condition that it forgets) -> a pipeline that shows it."""
UNSEEN = {
    ("rpeg-eliminate-old-logprob", "free routing"),  # the models here have no experts
}


def test_every_condition_is_planted() -> None:
    conditions = {(name, c.name) for name in KEEPING for c in LOADED[name].LEGALITY}
    assert conditions == {*BUGS, *UNSEEN}


@pytest.mark.parametrize(("name", "condition"), BUGS)
def test_a_forgotten_condition_is_found(name: str, condition: str, interpret: Interpret) -> None:
    module = BUGS[name, condition]
    assert found(module, without(name, condition), interpret)
    assert not found(module, made(name), interpret)


def test_merging_whatever_the_settings_is_found(
    monkeypatch: pytest.MonkeyPatch, interpret: Interpret
) -> None:
    two = (
        ("    actor@i+1", "    kl2 = kl_loss(y, lp_ref, coef=0.1)\n    actor@i+1"),
        ("pg, kl,", "pg, kl, kl2,"),
    )
    module = grpo(*two)

    def careless(op: Operation) -> object:
        return type(op), op.operands[:]

    assert not found(module, made("rpeg-canonicalize"), interpret)
    monkeypatch.setattr(rpeg_canonicalize, "_computes", careless)
    assert found(module, made("rpeg-canonicalize"), interpret)


def test_a_dropped_loss_is_found(interpret: Interpret) -> None:
    module = grpo()
    wrong = module.clone()
    update = next(op for op in wrong.walk() if isinstance(op, UpdateOp))
    kept = [loss for loss in update.losses if not isinstance(loss.owner, KlLossOp)]
    update.operands = [update.weights, update.optimizer, *kept]
    assert any("gradient" in text for text in differences(module, wrong, interpret))


def found(module: ModuleOp, step: RpegPass, interpret: Interpret) -> bool:
    """Whether the verifier, the interpreter or the comparison objects to a pass."""
    try:
        return bool(differences(module, rewritten(module, step), interpret))
    except (DiagnosticsError, InterpreterError, IndexError):
        return True
