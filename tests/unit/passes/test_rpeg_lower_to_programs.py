from __future__ import annotations

from pathlib import Path

import pytest
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.ir import Operation

from rpeg.frontend import load
from rpeg.ir.ops.declare import PipelineOp
from rpeg.ir.rrt.calls import CallOp
from rpeg.ir.rrt.program import AheadOp, ProgramOp
from rpeg.ir.rsched import TaskOp
from rpeg.ir.text.parse import parse_module
from rpeg.ir.text.sources import position_of
from rpeg.ir.types.attributes import RecordAttr
from rpeg.ir.vocabulary.settings import python_value
from rpeg.passes.base import PassRefused
from rpeg.passes.layout_names import parse_layout
from rpeg.passes.rpeg_annotate_parallelism import RpegAnnotateParallelismPass as Annotate
from tests.unit.passes.pipelines import grpo, one, parse, place, refusals, run

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden" / "refusals.golden"
PASS = "rpeg-lower-to-programs"
TO_L2 = (Annotate(dp=1), "rpeg-schedule")
DEFAULTS = {
    **dict.fromkeys(("dp", "tp", "pp", "cp", "ep", "vpp"), 1),
    **{"sp": False, "zero": 0, "recompute": "none"},
}


def refused(text: str, *, dp: int = 1, plan: str | None = None) -> list[str]:
    return refusals(parse(text), Annotate(dp=dp, plan=plan), "rpeg-schedule", PASS)


def callees(module: ModuleOp) -> list[str]:
    return [op.callee.data for op in module.walk() if isinstance(op, CallOp)]


def test_a_whole_program() -> None:
    module = run(parse(grpo()), *TO_L2, PASS)
    assert callees(module) == [
        *("start", "groups", "PromptData", "PromptData", "Verifier"),
        *("Trainer", "InitialWeights", "FrozenModel"),
        *("LatestWeights", "EmbeddedEngine", "TrajectoryBuffer"),
        *("restore", "publish", "swap_weights", "reset_prefix_cache"),
        *("batch", "generate", "put", "take", "score", "logprob", "logprob", "group_advantage"),
        *("ppo_clip", "kl_loss", "update", "publish", "swap_weights", "reset_prefix_cache"),
        *("report", "evaluate", "checkpoint", "finish"),
    ]
    assert not [op for op in module.walk() if isinstance(op, PipelineOp)]


JUDGE = 'model judge = generative_reward({}, template="{{response}}", max_tokens=4)\n  step i'


@pytest.mark.parametrize(
    ("model", "line"),
    [
        ("ref = policy(actor@0", 'rrt.call "FrozenModel"(%run, groups = %groups, source = %actor_'),
        ("ref = policy(far@0", 'rrt.call "FrozenModel"(%run, groups = %groups) {name = "ref"'),
        (
            JUDGE.format("ref@0"),
            'rrt.call "Judge"(%run, groups = %groups, source = %actor_initial)',
        ),
        (JUDGE.format("actor@0"), 'rrt.call "Judge"(%run, groups = %groups, source = %actor_init'),
        (JUDGE.format("far@0"), 'rrt.call "Judge"(%run, groups = %groups) {name = "judge"'),
    ],
)
def test_where_models_start(model: str, line: str) -> None:
    """From a trained model of the program, at however many removes, or from a source."""
    text = grpo(("  model ref", '  model far = policy("far")\n  model ref'))
    if "judge" in model:
        text = text.replace("step i", model, 1).replace("score(correct", "score(judge")
    else:
        text = text.replace("ref = policy(actor@0", model)
    printed = str(run(parse(text), *TO_L2, PASS))
    assert line in printed
    assert ('source = "far"' in printed) == ("far@0" in model)


def test_places_stay() -> None:
    text = grpo()
    module = run(parse(text), *TO_L2, PASS)
    found = {op.callee.data: str(position_of(op)) for op in module.walk() if isinstance(op, CallOp)}
    assert found["generate"] == place(text, "generate(")
    assert found["take"] == place(text, "generate(")
    assert found["Verifier"] == place(text, "correct = outcome")
    assert found["swap_weights"] == place(text, "update(")
    assert found["checkpoint"] == place(text, "checkpoint(")


def test_unused_declarations_are_not_made() -> None:
    spare = ("  step i", '  verifier spare = outcome("rule:answer_tag")\n  step i')
    assert callees(run(parse(grpo(spare)), *TO_L2, PASS)).count("Verifier") == 1


def test_on_policy_logprobs_are_a_constant() -> None:
    module = run(parse(grpo()), "rpeg-eliminate-old-logprob", *TO_L2, PASS)
    assert callees(module).count("logprob") == 1
    assert 'rrt.constant "ON_POLICY"' in str(module)


def test_every_pipeline_gets_a_program() -> None:
    module = parse(grpo() + grpo().removeprefix("rpeg 0.1\n").replace("pipeline p", "pipeline o"))
    run(module, *TO_L2, PASS)
    assert [op.title for op in module.walk() if isinstance(op, ProgramOp)] == ["p_all", "o_all"]


def test_it_needs_a_schedule() -> None:
    text = grpo()
    assert refusals(parse(text), Annotate(), PASS) == [
        f"{place(text, 'p {')}: takes L2: `p` has no rsched.sequence, so it is not of L2: run "
        "rpeg-schedule first"
    ]


def test_batches_divide() -> None:
    text = grpo(("agg=token_mean)", "agg=token_mean, minibatches=2)"), ("size=4", "size=6"))
    other = "write a multiple of 4, or a dp that divides 6, such as 3"
    assert refused(text, dp=4) == [
        f"{place(text, 'batch(train')}: a batch of 6 rows does not divide over 4 processes (dp=4): "
        f"{other}",
        f"{place(text, 'update(')}: a minibatch of 12 / 2 = 6 samples does not divide over 4 "
        f"processes (dp=4): {other}",
    ]


@pytest.mark.parametrize(
    ("layout", "why"),
    [
        (Annotate(cp=2), "cp=2): context parallelism (cp) does not compile yet: write cp=1"),
        (Annotate(dp=2, zero=2), "zero=2): sharded gradients and weights do not compile yet: "),
        (Annotate(dp=2, zero=3), "zero=3): sharded gradients and weights do not compile yet: "),
    ],
    ids=["cp", "zero2", "zero3"],
)
def test_axes_that_do_not_compile(layout: Annotate, why: str) -> None:
    text = grpo()
    (refusal,) = refusals(parse(text), layout, "rpeg-schedule", PASS)
    assert refusal.startswith(f"{place(text, 'generate(')}: par(dp={layout.dp}, {why}")


@pytest.mark.parametrize("name", ["tp2sp", "pp2vpp2full", "dp2zero1selective", "dp2tp2pp2"])
def test_layouts_reach_the_program(name: str) -> None:
    layout = parse_layout(name)
    module = run(parse(grpo()), Annotate(**layout), "rpeg-schedule", PASS)
    (groups,) = called(module, "groups")
    (record,) = groups.settings.values()
    assert isinstance(record, RecordAttr)
    held = {setting: python_value(value) for setting, value in record.settings.items()}
    assert held == DEFAULTS | layout
    assert groups.results[0].name_hint == "groups"


def plan(y: str, actor: str = "publish(all, mode=reshard)") -> str:
    lines = [
        f"y on all, {y}",
        *("r on cpu", "lp_old on all, par(dp=2)", "lp_ref on all, par(dp=2)"),
        f"actor on all, par(dp=2), {actor}",
        "heldout_acc on all, par(dp=2), engine(name=embedded)",
    ]
    pools = "pool all = gpus(0..1)\n    pool cpu = cores(0..0, per_node=4)"
    body = "\n    ".join([pools, *lines])
    return grpo().removesuffix("}\n") + f'  plan two on "h100-1" {{\n    {body}\n  }}\n}}\n'


@pytest.mark.parametrize(
    ("y", "actor", "at", "message"),
    [
        (
            "par(dp=2), engine(name=vllm)",
            "publish(all, mode=reshard)",
            "y on",
            "engine(name=vllm) does not compile yet: write engine(name=embedded)",
        ),
        (
            "par(dp=2), resid(kv=always)",
            "publish(all, mode=reshard)",
            "y on",
            "resid(kv=always) does not compile yet: leave it out",
        ),
        (
            "par(dp=2)",
            "publish(all, mode=bcast)",
            "actor on",
            "publish(to=all, mode=bcast) does not compile yet: write mode=reshard, and "
            "nothing else",
        ),
        (
            "par(dp=2)",
            "stream(lp_ref, samples=1), publish(all, mode=reshard)",
            "actor on",
            "stream(source=lp_ref, samples=1) does not compile yet: leave it out",
        ),
        (
            "par(dp=2)",
            "fuse(lp_ref), publish(all, mode=reshard)",
            "actor on",
            "fuse(with=lp_ref) does not compile yet: leave it out",
        ),
    ],
    ids=["vllm", "resid", "publish", "stream", "fuse"],
)
def test_clauses_that_do_not_compile(y: str, actor: str, at: str, message: str) -> None:
    text = plan(y, actor)
    assert refused(text, plan="two") == [f"{place(text, at)}: {message}"]


def laid_out(actor: str, ref: str, lp_old: str | None = None, y: str = "par(dp=1, tp=2)") -> str:
    """The plan with layouts of two processes, and other clauses, for the actor and the reference.

    `lp_old` is a log-prob of the actor.
    """
    changes = {
        "y on all, par(dp=2)": f"y on all, {y}",
        "lp_old on all, par(dp=2)": f"lp_old on all, {lp_old or actor}",
        "lp_ref on all, par(dp=2)": f"lp_ref on all, {ref}",
        "actor on all, par(dp=2)": f"actor on all, {actor}",
        "heldout_acc on all, par(dp=2)": "heldout_acc on all, par(dp=1, pp=2)",
    }
    text = plan("par(dp=2)")
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    return text


def test_models_may_have_layouts_of_their_own() -> None:
    text = laid_out("par(dp=1, tp=2, sp=true)", "par(dp=1, pp=2)")
    module = run(parse(text), Annotate(plan="two"), "rpeg-schedule", PASS)
    hints = [op.results[0].name_hint for op in called(module, "groups")]
    assert hints == ["groups_tp2sp", "groups_pp2"]
    wanted = {"Trainer": hints[0], "EmbeddedEngine": hints[0], "FrozenModel": hints[1]}
    for callee, groups in wanted.items():
        (made,) = called(module, callee)
        assert made.named["groups"].name_hint == groups


def test_a_log_prob_of_the_trained_model_need_not_say_how_it_is_trained() -> None:
    text = laid_out("par(dp=1, tp=2, recompute=full)", "par(dp=1, tp=2)", "par(dp=1, tp=2)")
    module = run(parse(text), Annotate(plan="two"), "rpeg-schedule", PASS)
    hints = [op.results[0].name_hint for op in called(module, "groups")]
    assert hints == ["groups_tp2full", "groups_tp2"]


def test_two_copies_of_a_model_do_not_compile() -> None:
    text = laid_out("par(dp=1, tp=2)", "par(dp=1, tp=2)", "par(dp=1, pp=2)")
    assert refused(text, plan="two") == [
        f"{place(text, 'lp_old on')}: par(dp=1, pp=2): `actor` has par(dp=1, tp=2), and a "
        "second copy of its weights does not compile yet: write the same"
    ]


def test_all_of_a_pool_takes_part() -> None:
    text = laid_out("par(dp=1, tp=2)", "par(dp=1)").replace("gpus(0..1)", "cores(0..0, per_node=2)")
    assert refused(text, plan="two") == [
        f"{place(text, 'lp_ref on')}: par(dp=1): stages of one pool take all of its processes, and "
        "others take 2: fewer do not compile yet"
    ]


def test_batches_are_split_as_what_samples() -> None:
    text = laid_out("par(dp=1, tp=2)", "par(dp=2)", y="par(dp=2)").replace(
        "heldout_acc on all, par(dp=1, pp=2)", "heldout_acc on all, par(dp=2)"
    )
    module = run(parse(text), Annotate(plan="two"), "rpeg-schedule", PASS)
    hints = [op.results[0].name_hint for op in called(module, "groups")]
    assert hints == ["groups_dp2", "groups_tp2"], "the first that are made split batches"
    (trainer,), (frozen,) = called(module, "Trainer"), called(module, "FrozenModel")
    assert trainer.named["groups"].name_hint == "groups_tp2"
    assert frozen.named["groups"].name_hint == "groups_dp2"


def test_what_runs_no_model_has_the_width_of_what_samples() -> None:
    text = laid_out("par(dp=1, tp=2)", "par(dp=2)").replace(
        "heldout_acc on all, par(dp=1, pp=2)", "heldout_acc on all, par(dp=2)"
    )
    assert refused(text, plan="two") == [
        f"{place(text, 'heldout_acc on')}: par(dp=2): what runs no model has the width of what "
        "samples: write dp=1"
    ]


SFT = """rpeg 0.1
pipeline p {
  model actor = policy("tiny", optim=adamw(lr=1e-3), dtype=fp32)
  model other = policy("tiny", dtype=fp32)
  data train = demos("rows.jsonl")
  step i < 10 {
    b = batch(train, size=4)
    ce = cross_entropy(b)
    actor@i+1 = update(actor@i, ce, agg=token_mean)
    every(steps=5) {
      loss = eval_loss(other, train)
    }
  }
  plan two on "h100-1" {
    pool all = gpus(0..1)
    actor on all, par(dp=2)
    loss on all, par(dp=1, tp=2)
  }
}
"""


def test_what_measures_data_has_the_width_of_the_batches() -> None:
    assert refused(SFT, plan="two") == [
        f"{place(SFT, 'loss on')}: par(dp=1, tp=2): what measures a data set has the width of "
        "what samples: write dp=2"
    ]


def test_models_by_name() -> None:
    given = Annotate(**parse_layout("dp2+actor=tp2sp"))  # type: ignore[arg-type]
    module = run(parse(grpo()), given, "rpeg-schedule", PASS)
    (trainer,), (frozen,) = called(module, "Trainer"), called(module, "FrozenModel")
    assert trainer.named["groups"].name_hint == "groups_tp2sp"
    assert frozen.named["groups"].name_hint == "groups_dp2"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("dp2+critic=tp2", "there is no model `critic` to give a layout; the file has: actor, ref"),
        ("dp2+actor=tp4", "`actor`: its layout takes 4 processes, and the others take 2"),
        ("dp2+actor=vpp2tp2", "`actor`: vpp=2 cuts pipeline stages: write pp=2 or more, or leave "),
    ],
)
def test_layouts_that_fit_no_model(name: str, why: str) -> None:
    given = Annotate(**parse_layout(name))  # type: ignore[arg-type]
    (refusal,) = refusals(parse(grpo()), given)
    assert why in refusal


def test_a_text_that_gives_no_layout_is_refused() -> None:
    (refusal,) = refusals(parse(grpo()), Annotate(others="actor"))
    assert "`actor` gives no model a layout" in refusal


def test_every_line_that_does_not_compile_is_told_at_its_place() -> None:
    text = plan("par(dp=2)").replace("par(dp=2), publish", "par(dp=2, zero=2), publish")
    text = text.replace("y on all, par(dp=2)", "y on all, par(dp=2, zero=2)")
    why = "par(dp=2, zero=2): sharded gradients and weights do not compile yet: write zero=1"
    lines = [place(text, line) for line in ("y on", "actor on")]
    assert refused(text, plan="two") == [f"{line}: {why}" for line in lines]


def called(module: ModuleOp, callee: str) -> list[CallOp]:
    return [op for op in module.walk() if isinstance(op, CallOp) and op.callee.data == callee]


def test_micro_batches_come_from_the_plan() -> None:
    text = laid_out("par(dp=1, tp=2), mb(tokens=512)", "par(dp=1, tp=2), mb(seqs=4)")
    module = run(parse(text), Annotate(plan="two"), "rpeg-schedule", PASS)
    (trainer,), (frozen,) = called(module, "Trainer"), called(module, "FrozenModel")
    assert "MicroBatch, {tokens = 512 : i64}" in str(trainer.settings["micro_batch"])
    assert "MicroBatch, {seqs = 4 : i64}" in str(frozen.settings["micro_batch"])


def test_a_model_has_one_bound() -> None:
    both = "par(dp=1, tp=2), mb("
    text = laid_out(f"{both}tokens=512)", "par(dp=1, tp=2)", f"{both}seqs=4)")
    assert refused(text, plan="two") == [
        f"{place(text, 'lp_old on')}: mb(seqs=4): `actor` has mb(tokens=512): write the same, "
        "or leave one out"
    ]


def test_engines_have_no_micro_batches() -> None:
    text = laid_out("par(dp=1, tp=2)", "par(dp=1, tp=2)", y="par(dp=1, tp=2), mb(seqs=4)")
    assert refused(text, plan="two") == [
        f"{place(text, 'y on')}: mb(seqs=4): `y` has no micro-batches: leave it out"
    ]


def test_one_refusal_does_not_cause_others() -> None:
    text = grpo(
        ("model ref = policy(actor@0", 'model ref = reward("rm", lora=lora(rank=4, alpha=8)'),
        ("lp_ref = logprob", "s = score"),
    )
    text = text.replace("    kl = kl_loss(y, lp_ref, coef=0.1)\n", "").replace("pg, kl,", "pg,")
    text = text.replace("group_advantage(r,", "group_advantage(s,")
    assert refused(text) == [
        f"{place(text, 'ref = reward')}: `ref`: adapters (lora) do not compile yet: leave lora out"
    ]


def shown(example: Path) -> str:
    """Every refusal of an example's pipelines, or that there is none."""
    text = example.read_text()
    lines = [f"== {example.name}"]
    module = load(text, example.name).module
    assert module is not None
    for title in [op.title for op in module.walk() if isinstance(op, PipelineOp)]:
        alone = load(text, example.name, pipeline=title).module
        assert alone is not None
        try:
            run(alone, *TO_L2, PASS)
            lines.append(f"{title}: compiles")
        except PassRefused as refusal:
            lines += [f"{title}: {problem.at}: {problem.message}" for problem in refusal.problems]
    return "\n".join(lines) + "\n"


def test_what_this_version_compiles_of_the_examples(update_golden: bool) -> None:
    found = "".join(shown(path) for path in sorted((ROOT / "examples").glob("*.rpeg")))
    if update_golden:
        GOLDEN.write_text(found)
    assert found == GOLDEN.read_text()


def test_the_program_of_the_source() -> None:
    module = run(parse(grpo()), *TO_L2, PASS)
    start = one(module, CallOp)
    assert isinstance(start, CallOp)
    assert start.settings["source_sha256"] == module.attributes["rpeg.source_sha256"]


COLLECT = """    r, y, lp = collect(groups=4, max_rounds=3) {
      q = batch(train, size=4)
      ys, lps = generate(actor@[i-2..i], q, n=2, max_tokens=8, dtype=fp32)
      rs = score(correct, ys)
      keep(rs, ys, lps, where=mixed)
    }
    prox = logprob(actor@i, y)
    w = importance(prox, lp)
"""


def collecting(*changes: tuple[str, str]) -> str:
    """A step whose samples are groups of older weights that are worth training on."""
    text = grpo(("adv, lp_old,", "adv, prox, w,"), *changes)
    lines = text.splitlines(keepends=True)
    first = next(k for k, line in enumerate(lines) if "q = batch" in line)
    return "".join([*lines[:first], COLLECT, *lines[first + 4 :]])


def test_a_collect_of_older_weights_runs_ahead() -> None:
    module = run(parse(collecting()), *TO_L2, PASS)
    (ahead,) = [op for op in module.walk() if isinstance(op, AheadOp)]
    assert callees_in(ahead) == ["batch", "generate", "score", "keep"]
    program = one(module, ProgramOp)
    assert callees_in(program).count("take") == 1
    assert "TrajectoryBuffer" not in callees_in(program)
    (made,) = [
        op for op in program.walk() if isinstance(op, CallOp) and op.callee.data == "Collect"
    ]
    assert python_value(made.settings["max_lag"]) == 2


def callees_in(op: Operation) -> list[str]:
    return [inner.callee.data for inner in op.walk() if isinstance(inner, CallOp)]


def test_a_collect_that_reads_weights_of_its_step_cannot_run_ahead() -> None:
    text = collecting().replace("      keep(", "      now = logprob(actor@i, ys)\n      keep(")
    assert refusals(parse(text), Annotate(), "rpeg-schedule") == [
        f"{place(text, 'collect(')}: it runs 2 steps ahead, for samples of older weights, and "
        "reads `actor` of its own step, which is not there yet"
    ]


def test_a_collect_of_older_weights_that_stays_in_its_step_is_refused() -> None:
    module = run(parse(collecting()), *TO_L2)
    for task in (op for op in module.walk() if isinstance(op, TaskOp)):
        task.properties.pop("ahead", None)
    with pytest.raises(PassRefused, match="runs ahead of its step: mark its task so"):
        run(module, PASS)


def test_a_task_ahead_is_beside_its_generate() -> None:
    module = run(parse(grpo()), *TO_L2)
    task = next(op for op in module.walk() if isinstance(op, TaskOp) and op.label.data == "q")
    task.properties["ahead"] = IntegerAttr(0, i64)
    with pytest.raises(PassRefused, match="no generate behind it fills a buffer"):
        run(module, PASS)


def test_a_group_without_a_stage_is_refused() -> None:
    text = """rpeg.pipeline @p {
  rpeg.data @train prompts("train.jsonl")
  rpeg.ranks @all 0 to 1
  rpeg.step i < 9 (%train: !rpeg.cursor<@train, prompts>) {
    %q, %train_1 = rpeg.batch %train {size = 8} attributes {task = "q"}
    rpeg.yield %train_1
  }
  rsched.sequence @all {
    rsched.task "q"
    rsched.edge "q" to "q" distance 1
  }
}
"""
    module, _, problems = parse_module(text, "p.mlir")
    assert module is not None, problems
    assert refusals(module, PASS) == [
        f"{place(text, 'rpeg.ranks')}: no stage runs on `all`: place one there, or take the group "
        "out"
    ]
