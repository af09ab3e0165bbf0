"""Plans of several pools at L1 and L2: where operations run, what crosses, who waits for whom."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import ModuleOp

from rpeg.ir.ops.movement import PublishOp, TransferOp, pool_of
from rpeg.ir.ops.regions import EveryOp
from rpeg.ir.ops.step import StepOp
from rpeg.ir.pools import made_on
from rpeg.ir.rrt import CallOp, ProgramOp
from rpeg.ir.rsched import EdgeOp, SequenceOp
from rpeg.ir.rules.verify import diagnose
from rpeg.ir.text.parse import parse_module
from rpeg.ir.types.values import symbol_text
from rpeg.passes.rpeg_annotate_parallelism import RpegAnnotateParallelismPass as Annotate
from tests.unit.passes.pipelines import grpo, one, parse, place, refusals, run

PLAN = """  plan two on "cpu" {
    pool rollout = cores(0..0, per_node=1)
    pool trainer = cores(0..0, per_node=1)
    y on rollout, par(dp=1)
    r on rollout, par(dp=1)
    lp_old on trainer, par(dp=1)
    lp_ref on trainer, par(dp=1)
    actor on trainer, par(dp=1), publish(rollout, mode=reshard), publish(trainer, mode=reshard)
    heldout_acc on trainer, par(dp=1)
  }
"""
TWO = Annotate(plan="two")


def planned(*changes: tuple[str, str], plan: str = PLAN) -> str:
    """The text with its plan, and each (old, new) replaced in both."""
    text = grpo().removesuffix("}\n") + plan + "}\n"
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


def pools(module: ModuleOp) -> dict[str, str | None]:
    """The pool of each task, by the name of its first result."""
    step = one(module, StepOp)
    assert isinstance(step, StepOp)
    named = [op for op in step.body.block.ops if op.results and op.name != "rpeg.get"]
    return {op.results[0].name_hint or "": pool_of(op) for op in named if op.name not in MOVES}


MOVES = ("rpeg.transfer", "rpeg.publish")


def crossings(module: ModuleOp) -> list[tuple[str | None, str | None, str | None]]:
    moved = [op for op in module.walk() if isinstance(op, TransferOp)]
    return [(op.moved.name_hint, made_on(op.moved), pool_of(op)) for op in moved]


def sequences(module: ModuleOp) -> dict[str, list[str]]:
    found = [op for op in module.walk() if isinstance(op, SequenceOp)]
    return {symbol_text(op.pool): list(op.labels) for op in found}


def test_everything_has_a_pool() -> None:
    module = run(parse(planned()), TWO)
    assert pools(module) == {
        **dict.fromkeys(["q", "y", "r"], "rollout"),
        **dict.fromkeys(["lp_old", "lp_ref", "adv", "pg", "kl", "actor"], "trainer"),
    }
    assert crossings(module) == [("y", "rollout", "trainer"), ("r", "rollout", "trainer")]
    (every,) = [op for op in module.walk() if isinstance(op, EveryOp)]
    assert pool_of(every) == "trainer"


def test_weights_go_where_they_are_sampled_from() -> None:
    """To the engine as a state; to the evals when they run."""
    module = run(parse(planned()), TWO)
    state, measured = [op for op in module.walk() if isinstance(op, PublishOp)]
    assert (pool_of(state), pool_of(measured)) == ("rollout", "trainer")
    assert isinstance(measured.parent_op(), EveryOp)
    step = one(module, StepOp)
    assert isinstance(step, StepOp)
    assert step.ending.operands[-1] is state.published


def test_a_score_between_crosses_twice() -> None:
    plan = PLAN.replace(
        "  pool trainer", "  pool checkers = cores(0..0, per_node=1)\n    pool trainer"
    )
    text = planned(("r on rollout, par(dp=1)", "r on checkers, par(dp=1)"), plan=plan)
    assert crossings(run(parse(text), TWO)) == [
        ("y", "rollout", "checkers"),
        ("y", "rollout", "trainer"),
        ("r", "checkers", "trainer"),
    ]


def test_verifiers_on_cores_run_with_what_samples() -> None:
    plan = PLAN.replace("  pool trainer", "  pool cpus = cores(0..0, per_node=1)\n    pool trainer")
    module = run(parse(planned(("r on rollout, par(dp=1)", "r on cpus"), plan=plan)), TWO)
    assert pools(module)["r"] == "rollout"


def test_a_sequence_each() -> None:
    module = run(parse(planned()), TWO, "rpeg-schedule")
    assert sequences(module) == {
        "rollout": ["q", "y", "y_to_trainer", "r", "r_to_trainer"],
        "trainer": [
            *("y_to_trainer", "lp_old", "lp_ref", "r_to_trainer", "adv", "pg", "kl"),
            *("actor", "publish_actor", "every_5"),
        ],
    }, "it takes what comes when it needs it"
    edges = [op for op in module.walk() if isinstance(op, EdgeOp)]
    assert [(op.source.data, op.target.data) for op in edges] == [
        ("q", "q"),
        ("publish_actor", "y"),
        ("actor", "lp_old"),
        ("actor", "actor"),
    ]


TASK = '      rsched.task "{}"\n'.format


BOTH_WAYS = planned(
    (
        "    lp_ref = logprob",
        "    q0 = batch(heldout, size=4)\n"
        "    y0, lp0 = generate(actor@i, q0, n=1, max_tokens=8, temperature=0.0, dtype=fp32)\n"
        "    r0 = score(correct, y0)\n    lp_ref = logprob",
    ),
    (
        "    lp_ref on",
        "    y0 on trainer, par(dp=1)\n    r0 on rollout, par(dp=1)\n    lp_ref on",
    ),
)


@pytest.mark.parametrize("sent_late", [False, True])
def test_pools_that_wait_for_each_other(sent_late: bool) -> None:
    """The trainer sends its own samples after it took others; so the other pool must not wait for
    them before it sends.
    """
    text = str(run(parse(BOTH_WAYS), TWO, "rpeg-schedule"))
    if sent_late:
        first, second = text.split("rsched.sequence @trainer")
        moved = TASK("r0") + TASK("y_to_trainer")
        first = first.replace(TASK("y_to_trainer"), "").replace(TASK("r0"), moved)
        text = f"{first}rsched.sequence @trainer{second}"
    module, sources, problems = parse_module(text, "p.mlir")
    assert module is not None, problems
    around = (
        "y0_to_rollout on rollout -> r0 on rollout -> y_to_trainer on rollout -> y_to_trainer on "
        "trainer -> lp_old on trainer -> q0 on trainer -> y0 on trainer -> y0_to_rollout on rollout"
    )
    assert [d.message for d in diagnose(module, sources)] == [
        f"zero-distance cycle: {around}: reorder a sequence, or give an edge distance 1"
    ] * sent_late


def test_what_is_only_reported_arrives_before_the_report() -> None:
    order = sequences(run(parse(BOTH_WAYS), TWO, "rpeg-schedule"))["trainer"]
    assert order[-3:] == ["publish_actor_2", "r0_to_trainer", "every_5"]


REFUSED = {
    "logprob away from its weights": (
        ("lp_old on trainer", "lp_old on rollout"),
        "lp_old on",
        "`lp_old` is on `rollout`, and `actor` trains on `trainer`: a second copy of its weights "
        "does not compile yet: write trainer",
    ),
    "eval away from home": (
        ("heldout_acc on trainer", "heldout_acc on rollout"),
        "heldout_acc on",
        "`heldout_acc` is on `rollout`: what runs every so many steps belongs to the pool that "
        "trains: write trainer",
    ),
}


@pytest.mark.parametrize(("change", "at", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(change: tuple[str, str], at: str, message: str) -> None:
    text = planned(change)
    assert refusals(parse(text), TWO) == [f"{place(text, at)}: {message}"]


def test_one_way_of_publishing() -> None:
    text = planned(("publish(rollout, mode=reshard)", "publish(rollout, mode=bcast)"))
    assert refusals(parse(text), TWO) == [
        f"{place(text, 'actor on')}: `actor` publishes in two ways: write the same for all pools"
    ]


def test_older_weights_where_they_are_trained() -> None:
    text = BOTH_WAYS.replace("generate(actor@i, q0", "generate(actor@[i-1..i], q0")
    assert refusals(parse(text), TWO, "rpeg-schedule", "rpeg-lower-to-programs") == [
        f"{place(text, 'generate(actor@[i-1')}: older weights, sampled from where they are "
        "trained, do not compile in a plan of several pools yet: sample on another pool, or read @i"
    ]


def test_rows_do_not_cross() -> None:
    text = planned(
        (
            "lp_ref = logprob(ref, y)",
            "y2, lp2 = generate(actor@i, q, max_tokens=8, dtype=fp32)\n"
            "    r2 = score(correct, y2)\n    lp_ref = logprob(ref, y)",
        ),
        (
            "    lp_ref on",
            "    y2 on trainer, par(dp=1)\n    r2 on trainer, par(dp=1)\n    lp_ref on",
        ),
    )
    assert refusals(parse(text), TWO) == [
        f"{place(text, 'batch(train')}: `q` is read on the pools `rollout` and `trainer`: rows of "
        "data do not cross pools yet: place what reads them together"
    ]


def test_data_of_two_pools() -> None:
    text = BOTH_WAYS.replace("batch(heldout", "batch(train")
    assert refusals(parse(text), TWO) == [
        f"{place(text, 'batch(train, size=4)' + chr(10) + '    y0')}: `train` is read on the pools "
        "`rollout` and `trainer`: a data set belongs to one pool: declare it once more, under "
        "another name"
    ]


def test_two_pools_that_train() -> None:
    text = planned(
        (
            "  model ref",
            "  model critic = value(actor@0, optim=adamw(lr=1e-3), dtype=fp32)\n  model ref",
        ),
        ("    lp_ref = logprob", "    v = values(critic@i, y)\n    lp_ref = logprob"),
        (
            "    kl = kl_loss",
            "    rt = kl_penalty(r, lp_old, lp_ref, coef=0.1)\n"
            "    raw, ret = gae(rt, v)\n    vl = value_loss(y, ret, v, clip=0.2)\n"
            "    critic@i+1 = update(critic@i, vl, agg=token_mean)\n    kl = kl_loss",
        ),
        (
            "    lp_ref on",
            "    v on rollout, par(dp=1)\n    critic on rollout, par(dp=1)\n    lp_ref on",
        ),
    )
    assert refusals(parse(text), TWO) == [
        f"{place(text, 'actor on')}: `actor` trains on `trainer`, another model on `rollout`: "
        "models that train in several pools do not compile yet: write one pool for both"
    ]


def test_passes_over_one_batch_share_it_in_their_pool() -> None:
    passes = ("rpeg-fuse-inference", "rpeg-schedule", "rpeg-lower-to-programs")
    module = run(parse(planned()), TWO, *passes)
    programs = [op for op in module.walk() if isinstance(op, ProgramOp)]
    calls = {
        p.pool.data: [o.callee.data for o in p.walk() if isinstance(o, CallOp)] for p in programs
    }
    assert calls["rollout"].count("forward") == 0
    assert calls["trainer"].count("forward") == 1


def test_pools_that_share_gpus() -> None:
    plan = PLAN.replace('"cpu"', '"h100-1"').replace("cores(0..0, per_node=1)", "gpus(0..0)")
    text = planned(plan=plan)
    assert refusals(parse(text), TWO) == [
        f"{place(text, 'trainer = gpus')}: the pools `rollout` and `trainer` share GPUs: stages "
        "that take turns on them belong to one pool, for now: write one, or disjoint ones"
    ]
