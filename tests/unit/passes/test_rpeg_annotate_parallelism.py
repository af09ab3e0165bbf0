from __future__ import annotations

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from rpeg.frontend import load
from rpeg.ir.ops.effects import EvalOp
from rpeg.ir.ops.movement import PublishOp, RanksOp, clause_of, pool_of
from rpeg.ir.ops.sampling import GenerateOp
from rpeg.ir.ops.step import StepOp
from rpeg.ir.ops.updates import UpdateOp
from rpeg.ir.rules.verify import diagnose
from rpeg.ir.stages import stages
from rpeg.ir.text.sources import Sources, position_of
from rpeg.ir.vocabulary.settings import python_value
from rpeg.passes.rpeg_annotate_parallelism import RpegAnnotateParallelismPass as Annotate
from tests.unit.passes.pipelines import grpo, one, parse, place, refusals, run

PLAN = """  plan two on "h100-1" {
    pool all = gpus(0..1)
    pool cpu = cores(0..0, per_node=4)
    y on all, par(dp=2), engine(name=vllm)
    r on cpu
    lp_old on all, par(dp=1, tp=2)
    lp_ref on all, par(dp=2), mb(tokens=512), resid(params=host), stream(y, samples=1)
    actor on all, par(dp=2), mb(seqs=4), publish(all, mode=reshard)
    heldout_acc on all, par(dp=2), engine(name=embedded)
  }
"""


def planned(plan: str = PLAN) -> str:
    return grpo().removesuffix("}\n") + plan + "}\n"


def test_an_axis_of_a_later_version_does_not_size_a_pool() -> None:
    plan = PLAN.replace("gpus(0..1)", "cores(0..0, per_node=2)").replace("dp=1, tp=2", "dp=1")
    plan = plan.replace("dp=2", "dp=1").replace("y on all, par(dp=1", "y on all, par(dp=1, cp=2")
    text = planned(plan)
    module = parse(text)
    Annotate(plan="two").apply(Context(), module)
    (found,) = diagnose(module, Sources("p.rpeg"))
    assert found.message == (
        "context parallelism (cp) does not compile yet: write cp=1; as it stands, "
        "tp x pp x cp x dp = 2, `all` has 1 ranks"
    )
    assert str(found.at) == place(text, "y on all")


def ranks(module: ModuleOp) -> dict[str, range]:
    return {op.title: op.ranks for op in module.walk() if isinstance(op, RanksOp)}


@pytest.mark.parametrize("dp", [1, 3])
def test_options(dp: int) -> None:
    text = grpo()
    module = run(parse(text), Annotate(dp=dp))
    assert ranks(module) == {"all": range(dp)}
    placed = stages(one(module, RanksOp))
    assert [*placed] == ["y", "r", "lp_old", "lp_ref", "actor", "heldout_acc"]
    for op in placed.values():
        par = clause_of(op, "par")
        assert pool_of(op) == "all"
        assert par is not None
        assert python_value(par.settings["dp"]) == dp
    assert str(position_of(placed["lp_ref"])) == place(text, "logprob(ref")


def test_widths_multiply() -> None:
    assert ranks(run(parse(grpo()), Annotate(dp=2, tp=2, pp=3, cp=5))) == {"all": range(60)}


def test_a_plan() -> None:
    module = run(parse(planned()), Annotate(plan="two"))
    assert ranks(module) == {"all": range(2)}
    held = {
        name: {kind for kind in op.attributes if kind not in ("stage", "pool")}
        for name, op in stages(one(module, RanksOp)).items()
    }
    assert held == {
        "y": {"par", "engine"},
        "r": set(),
        "lp_old": {"par"},
        "lp_ref": {"par", "mb", "resid", "stream"},
        "actor": {"par", "mb", "publish"},
        "heldout_acc": {"par", "engine"},
    }
    assert {pool_of(op) for op in stages(one(module, RanksOp)).values()} == {"all"}
    assert "rpeg.plan" not in str(module)


def test_two_pools_are_two_ranges() -> None:
    apart = PLAN.replace("gpus(0..1)\n", "gpus(0..1)\n    pool gen = gpus(2..5)\n")
    apart = apart.replace("y on all, par(dp=2)", "y on gen, par(dp=4)")
    apart = apart.replace("mode=reshard)\n", "mode=reshard), publish(gen, mode=reshard)\n")
    module = run(parse(planned(apart)), Annotate(plan="two"))
    assert ranks(module) == {"all": range(2), "gen": range(2, 6)}, "on GPUs in their order"


def test_publishing_is_a_state() -> None:
    text = grpo()
    module = run(parse(text), Annotate())
    publish, step = one(module, PublishOp), one(module, StepOp)
    assert isinstance(publish, PublishOp) and isinstance(step, StepOp)
    assert publish.weights.owner is one(module, UpdateOp)
    assert [s.name_hint for s in step.states] == ["actor", "actor_opt", "train", "actor_published"]
    assert step.ending.operands[-1] is publish.published
    assert one(module, GenerateOp).operands[0] is step.states[-1]
    assert one(module, EvalOp).operands[0] is publish.published
    assert str(position_of(publish)) == place(text, "update(")


def test_nothing_is_published_that_no_engine_reads() -> None:
    text = grpo(("eval(actor@i+1", "eval(actor@i"))
    module = run(parse(text), Annotate())
    step = one(module, StepOp)
    assert isinstance(step, StepOp)
    assert one(module, EvalOp).operands[0] is step.states[-1]
    sft = """rpeg 0.1
pipeline p {
  model actor = policy("tiny", optim=adamw(lr=1e-3))
  data train = demos("rows.jsonl")
  step i < 10 {
    b = batch(train, size=4)
    ce = cross_entropy(b)
    actor@i+1 = update(actor@i, ce, agg=token_mean)
  }
}
"""
    assert not [op for op in run(parse(sft), Annotate()).walk() if isinstance(op, PublishOp)]


@pytest.mark.parametrize(
    ("layout", "why"),
    [
        ("par(dp=2, sp=true)", "sp=true shards over tensor-parallel ranks: write tp=2 or more"),
        ("par(dp=2, vpp=2)", "vpp=2 cuts pipeline stages: write pp=2 or more"),
        ("par(dp=1, tp=2, zero=1)", "zero=1 shards over replicas: write dp=2 or more"),
        ("par(dp=2, zero=4)", "zero=4: expected 0 to 3"),
    ],
)
def test_settings_with_nothing_to_act_on_are_found_in_the_plan(layout: str, why: str) -> None:
    text = planned(PLAN.replace("par(dp=2), mb(seqs=4)", f"{layout}, mb(seqs=4)"))
    loaded = load(text, "p.rpeg")
    errors = [d for d in loaded.diagnostics if d.severity == "error"]
    assert [str(d.at) for d in errors] == [place(text, layout + ", mb(seqs")]
    assert errors[0].message.startswith(why)


@pytest.mark.parametrize("plans", [("", "none"), (PLAN, "two")], ids=["none", "others"])
def test_unknown_plan(plans: tuple[str, str]) -> None:
    text = planned(plans[0])
    assert refusals(parse(text), Annotate(plan="tow")) == [
        f"{place(text, 'p {')}: there is no plan `tow`; the file has: {plans[1]}"
    ]


def test_stage_without_a_line() -> None:
    text = planned(PLAN.replace("    lp_old on all, par(dp=1, tp=2)\n", ""))
    assert refusals(parse(text), Annotate(plan="two")) == [
        f"{place(text, 'two on')}: the plan leaves lp_old open, and nothing runs by it so: give "
        "each a line, such as `lp_old on all`"
    ]


def test_stage_without_a_layout() -> None:
    text = planned(
        PLAN.replace("lp_ref on all, par(dp=2), mb(tokens=512), resid", "lp_ref on cpu, resid")
    )
    assert refusals(parse(text), Annotate(plan="two")) == [
        f"{place(text, 'lp_ref on')}: `lp_ref` needs par(dp=...) on its line of plan `two`"
    ]
