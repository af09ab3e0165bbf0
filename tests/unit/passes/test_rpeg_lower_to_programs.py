from __future__ import annotations

from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp

from rpeg.frontend import load
from rpeg.ir.ops.declare import PipelineOp
from rpeg.ir.rrt import CallOp, ProgramOp
from rpeg.ir.sources import position_of
from rpeg.passes.base import PassRefused
from rpeg.passes.rpeg_annotate_parallelism import RpegAnnotateParallelismPass as Annotate
from tests.unit.passes.pipelines import grpo, one, parse, place, refusals, run

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden" / "refusals.golden"
PASS = "rpeg-lower-to-programs"
TO_L2 = (Annotate(dp=1), "rpeg-schedule")


def refused(text: str, *, dp: int = 1, plan: str | None = None) -> list[str]:
    return refusals(parse(text), Annotate(dp=dp, plan=plan), "rpeg-schedule", PASS)


def callees(module: ModuleOp) -> list[str]:
    return [op.callee.data for op in module.walk() if isinstance(op, CallOp)]


def test_a_whole_program() -> None:
    module = run(parse(grpo()), *TO_L2, PASS)
    assert callees(module) == [
        *("start", "groups", "Trainer", "InitialWeights", "FrozenModel", "PromptData"),
        *("PromptData", "Verifier", "LatestWeights", "EmbeddedEngine", "TrajectoryBuffer"),
        *("restore", "publish", "swap_weights", "reset_prefix_cache"),
        *("batch", "generate", "put", "take", "score", "logprob", "logprob", "group_advantage"),
        *("ppo_clip", "kl_loss", "update", "publish", "swap_weights", "reset_prefix_cache"),
        *("report", "evaluate", "checkpoint", "finish"),
    ]
    assert not [op for op in module.walk() if isinstance(op, PipelineOp)]


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
        f"{place(text, 'p {')}: programs are made of a scheduled pipeline: run rpeg-schedule first"
    ]


def test_batches_divide() -> None:
    text = grpo(("agg=token_mean)", "agg=token_mean, minibatches=2)"), ("size=4", "size=6"))
    assert refused(text, dp=4) == [
        f"{place(text, 'batch(train')}: a batch of 6 rows does not divide over 4 processes (dp=4)",
        f"{place(text, 'update(')}: a minibatch of 12 / 2 = 6 samples does not divide over 4 "
        "processes (dp=4)",
    ]


@pytest.mark.parametrize("axis", ["tp", "pp", "cp"])
def test_only_data_parallel_layouts(axis: str) -> None:
    text = grpo()
    wide = Annotate(dp=1, tp=1 + (axis == "tp"), pp=1 + (axis == "pp"), cp=1 + (axis == "cp"))
    assert refusals(parse(text), wide, "rpeg-schedule", PASS) == [
        f"{place(text, 'generate(')}: par(dp=1, {axis}=2): this version compiles data-parallel "
        "layouts, par(dp=...)"
    ]


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
            "generate(",
            "engine(name=vllm) does not compile yet: write engine(name=embedded)",
        ),
        (
            "par(dp=2), resid(kv=always)",
            "publish(all, mode=reshard)",
            "generate(",
            "resid(kv=always) does not compile yet: leave it out",
        ),
        (
            "par(dp=2)",
            "publish(all, mode=bcast)",
            "update(",
            "publish(to=all, mode=bcast) does not compile yet: write mode=reshard, to "
            "the same pool",
        ),
        (
            "par(dp=2)",
            "stream(lp_ref, samples=1), publish(all, mode=reshard)",
            "update(",
            "stream(source=lp_ref, samples=1) does not compile yet: leave it out",
        ),
        (
            "par(dp=2)",
            "fuse(lp_ref), publish(all, mode=reshard)",
            "update(",
            "fuse(with=lp_ref) does not compile yet: leave it out",
        ),
    ],
    ids=["vllm", "resid", "publish", "stream", "fuse"],
)
def test_clauses_that_do_not_compile(y: str, actor: str, at: str, message: str) -> None:
    text = plan(y, actor)
    assert refused(text, plan="two") == [f"{place(text, at)}: {message}"]


def test_layouts_that_differ() -> None:
    text = plan("par(dp=2, recompute=full)")
    assert refused(text, plan="two") == [
        f"{place(text, 'logprob(actor')}: par(dp=2): this version compiles one layout a pipeline"
    ]


def test_micro_batches_come_from_the_plan() -> None:
    text = plan("par(dp=2)", "mb(tokens=512), publish(all, mode=reshard)")
    module = run(parse(text), Annotate(plan="two"), "rpeg-schedule", PASS)
    trainer = next(
        op for op in module.walk() if isinstance(op, CallOp) and op.callee.data == "Trainer"
    )
    assert "MicroBatch, {tokens = 512 : i64}" in str(trainer.settings["micro_batch"])


def test_one_refusal_does_not_cause_others() -> None:
    text = grpo(
        ("model ref = policy(actor@0", 'model ref = reward("rm"'), ("lp_ref = logprob", "s = score")
    )
    text = text.replace("    kl = kl_loss(y, lp_ref, coef=0.1)\n", "").replace("pg, kl,", "pg,")
    text = text.replace("group_advantage(r,", "group_advantage(s,")
    assert refused(text) == [
        f"{place(text, 'ref = reward')}: `ref`: model reward does not compile yet"
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
            lines += [f"{title}: {position_of(op)}: {message}" for op, message in refusal.problems]
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
