"""Programs whose batches come in completion order, and steps that can't be compiled so."""

from __future__ import annotations

import pytest
from xdsl.ir import Operation

from rpeg.ir.rrt.calls import CallOp
from rpeg.ir.rrt.program import AheadOp, ProgramOp
from rpeg.ir.rules.verify import diagnose
from rpeg.ir.text.sources import Sources
from rpeg.passes.rpeg_lower_to_programs import RpegLowerToProgramsPass
from tests.unit.passes.pipelines import parse, place, refusals, run
from tests.unit.passes.test_pools import TWO, planned

COMPLETION = RpegLowerToProgramsPass(order="completion")


def calls(op: Operation) -> list[str]:
    return [o.callee.data for o in op.walk() if isinstance(o, CallOp)]


def programs(text: str) -> dict[str, ProgramOp]:
    module = run(parse(text), TWO, "rpeg-schedule", COMPLETION)
    return {op.pool.data: op for op in module.walk() if isinstance(op, ProgramOp)}


def resumed(old_spans: str) -> str:
    """Sampled from a window, whose samples go on with new weights."""
    said = f"max_tokens=8, dtype=fp32, overflow=resume, old_spans={old_spans})"
    return planned(
        (
            "generate(actor@i, q, n=2, max_tokens=8, dtype=fp32)",
            f"generate(actor@[i-2..i], q, n=2, {said}",
        ),
        ("adv, lp_old, clip", "adv, lp_old, w, clip"),
        ("    pg = ", "    w = importance(lp_old, lp, cap=5.0)\n    pg = "),
    )


def test_prompts_start_ahead_of_their_step() -> None:
    made = programs(planned())
    (ahead,) = (op for op in made["rollout"].walk() if isinstance(op, AheadOp))
    assert calls(ahead) == ["batch", "offer"]
    found = calls(made["rollout"])
    assert found.count("batch") == found.count("generate") == 1
    assert found.index("offer") < found.index("generate") < found.index("put")
    assert "Rollouts" not in calls(made["trainer"])


@pytest.mark.parametrize(
    ("erased", "code"),
    [("swap_weights", "unpublished-weights"), ("reset_prefix_cache", "swap-without-reset")],
)
def test_what_is_in_flight_starts_from_the_weights_that_came(erased: str, code: str) -> None:
    module = run(parse(planned()), TWO, "rpeg-schedule", COMPLETION)
    assert not list(diagnose(module, Sources("p.rpeg")))
    call = next(c for c in module.walk() if isinstance(c, CallOp) and c.callee.data == erased)
    call.detach()
    call.erase()
    assert {d.rule for d in diagnose(module, Sources("p.rpeg"))} == {code}


@pytest.mark.parametrize("old_spans", ["mask", "drop", "regenerate"])
def test_old_spans(old_spans: str) -> None:
    """Masked or dropped where they are trained on; sampled again where they are sampled."""
    made = programs(resumed(old_spans))
    texts = {pool: str(program) for pool, program in made.items()}
    again = old_spans == "regenerate"
    assert ("again = true" in texts["rollout"]) == again
    assert (f'old_spans = "{old_spans}"' in texts["trainer"]) != again


SECOND = (
    ("    r on", "    y2 on rollout, par(dp=1)\n    r2 on rollout, par(dp=1)\n    r on"),
    ("    adv = ", "    r2 = score(correct, y2)\n    adv = "),
)


def test_an_engine_where_its_model_trains() -> None:
    text = planned()
    found = refusals(parse(text), "rpeg-annotate-parallelism", "rpeg-schedule", COMPLETION)
    assert found == [
        f"{place(text, 'generate(')}: order=completion: samples where its model trains: give the "
        "engine a pool of its own in a plan; or choose order=index"
    ]


@pytest.mark.parametrize(
    ("batch", "prompts", "why"),
    [
        ("", "q", "`q` is read elsewhere too, and the samples of a step have other prompts"),
        (
            "    q2 = batch(train, size=4)\n",
            "q2",
            "`actor` samples twice a step: its engine keeps one batch in flight",
        ),
    ],
)
def test_two_batches_of_one_model(batch: str, prompts: str, why: str) -> None:
    more = f"{batch}    y2, lp2 = generate(actor@i, {prompts}, max_tokens=8, dtype=fp32)\n"
    text = planned(("    r = score", f"{more}    r = score"), *SECOND)
    found = refusals(parse(text), TWO, "rpeg-schedule", COMPLETION)
    assert found == [
        f"{place(text, at)}: order=completion: {why}; or choose order=index"
        for at in ("generate(actor@i, q, n", f"generate(actor@i, {prompts}, max")
    ]


def test_an_order_that_there_is_not() -> None:
    with pytest.raises(ValueError, match="`order` is index or completion, not random"):
        RpegLowerToProgramsPass(order="random")
