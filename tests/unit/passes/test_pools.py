"""Plans of several pools at L1 and L2: where operations run, what crosses, who waits for whom."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import ModuleOp

from rpeg.ir.ops.movement import PublishOp, TransferOp, pool_of
from rpeg.ir.ops.regions import EveryOp
from rpeg.ir.ops.step import StepOp
from rpeg.ir.pools import made_on
from rpeg.ir.rrt.calls import CallOp
from rpeg.ir.rrt.program import ProgramOp
from rpeg.ir.rsched import EdgeOp, SequenceOp
from rpeg.ir.rules.verify import diagnose
from rpeg.ir.text.parse import parse_module
from rpeg.ir.types.flow import symbol_text
from rpeg.passes.rpeg_annotate_parallelism import RpegAnnotateParallelismPass as Annotate
from rpeg.passes.rpeg_lower_to_programs import RpegLowerToProgramsPass
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
        "`heldout_acc` is on `rollout`: what runs every so many steps belongs to the run's home: "
        "write trainer",
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


CRITIC = planned(
    (
        "  model ref",
        "  model critic = value(actor@0, optim=adamw(lr=1e-3), dtype=fp32)\n  model ref",
    ),
    ("    lp_ref = logprob", "    v = values(critic@i, y)\n    lp_ref = logprob"),
    ("    adv = group_advantage(r, baseline=mean, scale=std)\n", ""),
    (
        "    pg = ",
        "    rt = kl_penalty(r, lp_old, lp_ref, coef=0.1)\n"
        "    adv, ret = gae(rt, v)\n    vl = value_loss(y, ret, v, clip=0.2)\n"
        "    critic@i+1 = update(critic@i, vl, agg=token_mean)\n    pg = ",
    ),
    (
        "  pool trainer",
        "  pool critics = cores(0..0, per_node=1)\n    pool trainer",
    ),
    (
        "    lp_ref on",
        "    v on critics, par(dp=1)\n    critic on critics, par(dp=1)\n    lp_ref on",
    ),
)


def test_a_critic_in_a_pool_of_its_own() -> None:
    """It is asked and trained there; the pool whose model is sampled from is home, though its
    update comes last.
    """
    module = run(parse(CRITIC), TWO)
    assert pools(module) == {
        **dict.fromkeys(["q", "y", "r"], "rollout"),
        **dict.fromkeys(["v", "vl", "critic"], "critics"),
        **dict.fromkeys(["lp_old", "lp_ref", "rt", "adv", "pg", "kl", "actor"], "trainer"),
    }
    assert crossings(module) == [
        ("y", "rollout", "trainer"),
        ("y", "rollout", "critics"),
        ("r", "rollout", "trainer"),
        ("v", "critics", "trainer"),
        ("ret", "trainer", "critics"),
    ]
    run(module, "rpeg-schedule")
    assert sequences(module)["critics"] == [
        *("y_to_critics", "v", "v_to_trainer", "ret_to_critics", "vl", "critic")
    ]


def test_programs_of_a_critic_in_a_pool_of_its_own() -> None:
    module = run(parse(CRITIC), TWO, "rpeg-schedule", "rpeg-lower-to-programs")
    made = {op.pool.data: op for op in module.walk() if isinstance(op, ProgramOp)}
    calls = {
        pool: [op.callee.data for op in program.walk() if isinstance(op, CallOp)]
        for pool, program in made.items()
    }
    assert [calls[pool].count("Trainer") for pool in ("rollout", "critics", "trainer")] == [0, 1, 1]
    assert calls["critics"].count("update") == 1
    assert calls["trainer"].count("checkpoint") == 1
    bounds = {
        pool: [
            (op.settings["name"].data, op.settings["target"].data)
            for op in program.walk()
            if isinstance(op, CallOp) and "max_lag" in op.settings
        ]
        for pool, program in made.items()
    }
    to_critics, to_trainer = ("y_to_critics", "critics"), ("y_to_trainer", "trainer")
    assert bounds == {
        "rollout": [to_trainer, to_critics],
        "critics": [to_critics],
        "trainer": [to_trainer],
    }


def test_a_critic_where_samples_are_made() -> None:
    text = CRITIC.replace(" on critics", " on rollout")
    text = text.replace("    pool critics = cores(0..0, per_node=1)\n", "")
    module = run(parse(text), TWO)
    assert crossings(module) == [
        ("y", "rollout", "trainer"),
        ("r", "rollout", "trainer"),
        ("v", "rollout", "trainer"),
        ("ret", "trainer", "rollout"),
    ]
    run(module, "rpeg-schedule", "rpeg-lower-to-programs")
    found = refusals(parse(text), TWO, "rpeg-schedule", RpegLowerToProgramsPass(order="completion"))
    assert found == [
        f"{place(text, 'generate(')}: order=completion: samples where `critic` trains: give the "
        "engine a pool of its own in a plan; or choose order=index"
    ]


def test_critic_that_waits_for_what_it_has_to_send() -> None:
    """The returns need its values: it sends those before it waits for them."""
    text = str(run(parse(CRITIC), TWO, "rpeg-schedule"))
    first, second = text.split("rsched.sequence @critics")
    critics, rest = second.split("}", 1)
    late = critics.replace(TASK("v_to_trainer"), "")
    late = late.replace(TASK("ret_to_critics"), TASK("ret_to_critics") + TASK("v_to_trainer"))
    assert late != critics
    text = f"{first}rsched.sequence @critics{late}}}{rest}"
    module, sources, problems = parse_module(text, "p.mlir")
    assert module is not None, problems
    (found,) = diagnose(module, sources)
    assert found.rule == "zero-distance-cycle"
    assert "ret_to_critics on critics -> v_to_trainer on critics" in found.message, found.message


def changed(*changes: tuple[str, str]) -> str:
    """The step with its critic, and each (old, new) replaced."""
    text = CRITIC
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


AWAY = {
    "values away from the critic": (
        (
            ("v on critics", "v on trainer"),
            ("critic on critics, ", "critic on critics, publish(trainer, mode=reshard), "),
        ),
        "v on trainer",
        "`v` is on `trainer`, and `critic` trains on `critics`: a second copy of its weights does "
        "not compile yet: write critics",
    ),
    "a critic that is exported": (
        (("      checkpoint()", '      checkpoint()\n      export(critic@i+1, to="out")'),),
        "export(critic",
        "`export` is on `trainer`, and `critic` trains on `critics`: a second copy of its weights "
        "does not compile yet: train it on trainer",
    ),
    "an update every so many steps": (
        (
            ("    critic@i+1 = update(critic@i, vl, agg=token_mean)\n", ""),
            (
                "    every(steps=5) {",
                "    every(steps=2) {\n"
                "      critic@i+1 = update(critic@i, vl, agg=token_mean)\n    }\n"
                "    every(steps=5) {",
            ),
        ),
        "critic on critics",
        "`critic` is on `critics`: what runs every so many steps belongs to the run's home: write "
        "trainer",
    ),
}


@pytest.mark.parametrize(("changes", "at", "message"), AWAY.values(), ids=AWAY)
def test_refused_with_a_critic_of_its_own(
    changes: tuple[tuple[str, str], ...], at: str, message: str
) -> None:
    text = changed(*changes)
    assert refusals(parse(text), TWO) == [f"{place(text, at)}: {message}"]


def test_a_loss_of_two_pools() -> None:
    text = """rpeg 0.1
pipeline p {
  model a = policy("tiny", optim=adamw(lr=1e-3), dtype=fp32)
  model b = policy("tiny", optim=adamw(lr=1e-3), dtype=fp32)
  data train = demos("rows.jsonl")
  step i < 10 {
    d = batch(train, size=4)
    ce = cross_entropy(d)
    a@i+1 = update(a@i, ce, agg=token_mean)
    b@i+1 = update(b@i, ce, agg=token_mean)
  }

  plan two on "cpu" {
    pool one = cores(0..0, per_node=1)
    pool other = cores(0..0, per_node=1)
    a on one, par(dp=1)
    b on other, par(dp=1)
  }
}
"""
    assert refusals(parse(text), TWO) == [
        f"{place(text, 'b on')}: `ce` is read on the pools `one` and `other`: a loss does not "
        "cross pools: write one for each"
    ]


def test_engines_get_their_weights_from_one_pool() -> None:
    other = 'policy("tiny", optim=adamw(lr=1e-3), dtype=fp32)'
    text = BOTH_WAYS.replace("n=1, max_tokens=8, temperature=0.0", "n=2, max_tokens=8")
    for old, new in (
        ("  model ref", f"  model other = {other}\n  model ref"),
        ("generate(actor@i, q0", "generate(other@i, q0"),
        (
            "    lp_ref = logprob",
            "    adv0 = group_advantage(r0, baseline=mean, scale=std)\n"
            "    pg0 = ppo_clip(y0, adv0, lp0, clip_low=0.2, clip_high=0.2)\n"
            "    other@i+1 = update(other@i, pg0, agg=token_mean)\n    lp_ref = logprob",
        ),
        (
            "    lp_ref on",
            "    other on rollout, par(dp=1), publish(trainer, mode=reshard)\n    lp_ref on",
        ),
    ):
        assert old in text, old
        text = text.replace(old, new)
    assert refusals(parse(text), TWO) == [
        f"{place(text, 'actor on')}: `actor` trains on `trainer`, another model that is sampled "
        "from on `rollout`: engines get their weights from one pool: write rollout"
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
