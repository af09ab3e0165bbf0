from __future__ import annotations

import re

import pytest
from xdsl.dialects.builtin import ModuleOp

from rpeg.frontend.lift import lift
from rpeg.frontend.render import render
from rpeg.ir.ops.sampling import GenerateOp
from rpeg.ir.rules.verify import diagnose
from rpeg.ir.text.sources import Sources, position_of
from rpeg.ir.types.values import TrajectoriesType
from rpeg.passes.base import PassRefused
from rpeg.passes.rpeg_bounded_async import RpegBoundedAsyncPass
from tests.unit.passes.pipelines import COLLECTED, grpo, one, parse, place, refusals, run

ALLOW = ("  step i", "  allow bounded_async(staleness=4)\n  step i")
SAMPLED = (
    ("    lp_old = logprob(actor@i, y)\n", ""),
    ("adv, lp_old,", "adv, lp,"),
)
GRADIENT = (
    ("    lp_old = logprob(actor@i, y)\n", ""),
    ("ppo_clip(y, adv, lp_old, clip_low=0.2, clip_high=0.2)", "policy_gradient(y, adv)"),
)


def ahead(staleness: int = 2, **options: str) -> RpegBoundedAsyncPass:
    return RpegBoundedAsyncPass(staleness, **options)


def text_of(module: ModuleOp) -> str:
    return render(lift(module, Sources("p.rpeg")))


def after(*changes: tuple[str, str], step: RpegBoundedAsyncPass | None = None) -> str:
    """The text that the pass makes of GRPO; it means the same to the whole verifier."""
    module = run(parse(grpo(ALLOW, *changes)), step or ahead())
    assert [d for d in diagnose(module, Sources("p.rpeg")) if d.severity == "error"] == []
    return text_of(module)


def lines_of(text: str, *words: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if any(w in line for w in words)]


# ---- what it changes


def test_the_window_and_the_weights() -> None:
    assert lines_of(after(*SAMPLED), "generate", "prox") == [
        "y, lp = generate(actor@[i-2..i], q, n=2, max_tokens=8, dtype=fp32, bound=strict, "
        "overflow=wait)",
        "prox = logprob(actor@i, y)",
        "w = importance(prox, lp, cap=5.0)",
        "pg = ppo_clip(y, adv, prox, w, clip_low=0.2, clip_high=0.2)",
    ]


def test_log_probs_that_are_there_already() -> None:
    found = after()
    assert "prox" not in found
    assert lines_of(found, "pg =", "w =") == [
        "w = importance(lp_old, lp, cap=5.0)",
        "pg = ppo_clip(y, adv, lp_old, w, clip_low=0.2, clip_high=0.2)",
    ]


def test_log_probs_that_the_update_would_compute() -> None:
    module = run(parse(grpo(ALLOW)), "rpeg-eliminate-old-logprob", ahead())
    assert "rpeg.on_policy_logprob" not in str(module)
    assert "importance(prox, lp, cap=5.0)" in text_of(module)


@pytest.mark.parametrize(
    ("correction", "said"),
    [
        ("decoupled", "cap=5.0"),
        ("truncated", ""),
        ("icepop", "floor=0.5, cap=5.0, mode=mask"),
        ("sequence_mask", "floor=0.2, cap=5.0, mode=mask, level=sequence"),
    ],
)
def test_corrections(correction: str, said: str) -> None:
    found = after(*GRADIENT, step=ahead(correction=correction))
    wanted = f"w = importance(prox, lp{', ' if said else ''}{said})"
    assert lines_of(found, "w =", "pg =") == [wanted, "pg = policy_gradient(y, adv, w)"]


def test_no_weights_where_none_are_needed() -> None:
    found = after(*SAMPLED, step=ahead(1, correction="none-if-covered"))
    assert lines_of(found, "pg =") == ["pg = ppo_clip(y, adv, lp, clip_low=0.2, clip_high=0.2)"]
    assert "actor@[i-1..i]" in found


def test_losses_of_the_same_samples_share_their_weights() -> None:
    second = (
        ("pg, kl,", "pg, more, kl,"),
        ("    kl =", "    more = cispo(y, adv, lp_old, clip_high=2.0)\n    kl ="),
    )
    found = after(*second)
    assert lines_of(found, "w =", "more =") == [
        "w = importance(lp_old, lp, cap=5.0)",
        "more = cispo(y, adv, lp_old, w, clip_high=2.0)",
    ]


def test_weights_of_the_text_stay() -> None:
    weighted = (
        ("    pg =", "    w = importance(lp_old, lp, cap=3.0)\n    pg ="),
        ("lp_old, clip", "lp_old, w, clip"),
    )
    found = after(*weighted)
    assert lines_of(found, "importance") == ["w = importance(lp_old, lp, cap=3.0)"]
    assert "actor@[i-2..i]" in found


def test_names_that_are_taken() -> None:
    found = after(*SAMPLED, ("r = score", "prox = score"), ("advantage(r", "advantage(prox"))
    assert "prox_2 = logprob(actor@i, y)" in found


def test_what_a_collect_keeps() -> None:
    module = run(parse(grpo(ALLOW, *COLLECTED, *SAMPLED)), ahead())
    held = [v.type for op in module.walk() for v in op.operands]
    lags = {t.lag for t in held if isinstance(t, TrajectoriesType)}
    assert lags == {(0, 2)}
    assert "w = importance(prox, lp, cap=5.0)" in text_of(module)


def test_windows_are_widened_not_moved() -> None:
    assert "actor@[i-2..i-1]" in after(("actor@i, q", "actor@i-1, q"), *SAMPLED)
    module = parse(after())
    assert str(run(module.clone(), ahead(2))) == str(module)
    assert "actor@[i-3..i]" in text_of(run(module, ahead(3)))


def test_the_greedy_baseline_of_the_same_weights() -> None:
    remax = (
        ("    adv = group_advantage(r, baseline=mean, scale=std)\n", ""),
        (
            "    pg =",
            "    y0, lp0 = generate(actor@i, q, max_tokens=8, temperature=0.0, dtype=fp32)\n"
            "    r0 = score(correct, y0)\n    adv = remax_advantage(r, r0)\n    pg =",
        ),
    )
    assert after(*remax).count("actor@[i-2..i]") == 2


def test_nothing_without_staleness() -> None:
    module = parse(grpo())
    before = str(module)
    assert str(run(module, ahead(0))) == before


def test_as_much_as_the_file_allows() -> None:
    assert "actor@[i-4..i]" in after(step=RpegBoundedAsyncPass())


def test_frozen_models_have_no_versions() -> None:
    teacher = (
        "    kl =",
        "    yt, lpt = generate(ref, q, max_tokens=4)\n    lp_t = logprob(ref, yt)\n    kl =",
    )
    assert "generate(ref, q, max_tokens=4)" in after(teacher)


# ---- what is said of the window


def allowing(words: str) -> tuple[str, str]:
    return ("bounded_async(staleness=4", f"bounded_async(staleness=4, {words}")


def window(text: str) -> str:
    """What a text's step says of its window."""
    words = " ".join(text[text.index("step i") :].split())
    found = re.search(r"bound=\w+, overflow=\w+(, old_spans=\w+)?", words)
    assert found is not None
    return found[0]


def test_words_of_the_file() -> None:
    assert window(after(allowing("overflow=drop"))) == "bound=strict, overflow=drop"
    resumed = allowing("overflow=resume, old_spans=mask")
    assert window(after(resumed)) == "bound=strict, overflow=resume, old_spans=mask"


def test_words_of_the_options() -> None:
    resumed = allowing("overflow=resume, old_spans=mask")
    found = after(resumed, step=ahead(overflow="wait"))
    assert window(found) == "bound=strict, overflow=wait"
    headed = after(allowing("bound=head"), step=ahead(bound="strict"))
    assert window(headed) == "bound=strict, overflow=wait"


def test_words_of_the_step() -> None:
    own = ("actor@i, q, n=2, max_tokens=8", "actor@[i-1..i], q, n=2, max_tokens=8, overflow=drop")
    weighted = (
        ("    pg =", "    w = importance(lp_old, lp)\n    pg ="),
        ("lp_old, clip", "lp_old, w, clip"),
    )
    found = after(allowing("overflow=drop"), own, *weighted)
    assert window(found) == "bound=strict, overflow=drop"
    assert "actor@[i-2..i]" in found


# ---- plans


def test_plans_get_a_line_for_what_is_new() -> None:
    plan = (
        '  plan one on "cpu" {\n    pool all = cores(0..0, per_node=2)\n'
        "    y on all, par(dp=2), engine(name=embedded)\n    r on all\n"
        "    lp_ref on all, par(dp=2)\n"
        "    actor on all, par(dp=2, zero=1), mb(tokens=512), publish(all, mode=reshard)\n"
        "    heldout_acc on all, par(dp=2), engine(name=embedded)\n  }\n}\n"
    )
    text = grpo(ALLOW, *SAMPLED).removesuffix("}\n") + plan
    step = ahead()
    found = text_of(run(parse(text), step))
    assert lines_of(found, "prox on") == ["prox on all, par(dp=2, zero=1), mb(tokens=512)"]
    assert step.statistics.counts["plan lines added"] == 1


def test_statistics() -> None:
    step = ahead()
    run(parse(grpo(ALLOW, *SAMPLED)), step)
    assert step.statistics.counts == {
        "log-probs added": 1,
        "plan lines added": 0,
        "losses corrected": 1,
        "windows widened": 1,
    }


# ---- what it refuses


def refused(*changes: tuple[str, str], step: RpegBoundedAsyncPass | None = None) -> list[str]:
    text = grpo(*changes)
    found = refusals(parse(text), step or ahead())
    return [line.partition(": ")[2] if ":" in line else line for line in found]


def test_windows_are_not_narrowed() -> None:
    text = text_of(run(parse(grpo(ALLOW)), ahead()))
    at = place(text, "generate(actor")
    assert refusals(parse(text), ahead(1)) == [
        f"{at}: `y` may be 2 steps old as the file says it, and staleness=1 narrows no window: "
        "write actor@[i-1..i] in the file"
    ]
    moved = text.replace("actor@[i-2..i]", "actor@[i-3..i-2]")
    assert refusals(parse(moved), ahead(1))[0].endswith("write actor@i-1 in the file")
    assert refusals(parse(moved), ahead(2))[0].endswith("write actor@i-2 in the file")


def test_without_permission() -> None:
    assert refused() == [
        "this changes what is trained: add `allow bounded_async(...)` to permit it"
    ]


def test_beyond_the_permission() -> None:
    text = grpo(ALLOW)
    at = place(text, "generate(actor")
    assert refusals(parse(text), ahead(5, overflow="drop")) == [
        f"{at}: `y` would be up to 5 steps old, the file allows 4: write "
        "allow bounded_async(staleness=5), or take staleness=4",
        f"{at}: overflow=drop: the file allows overflow=wait: write overflow=wait, or "
        "allow bounded_async(..., overflow=drop)",
    ]


def test_old_spans_without_their_reason() -> None:
    assert refused(ALLOW, step=ahead(old_spans="mask"))[0].startswith("`old_spans` belongs to")
    resumed = allowing("overflow=resume, old_spans=mask")
    found = refused(ALLOW, resumed, step=ahead(bound="strict", overflow="drop", old_spans="mask"))
    assert found[-1].startswith("`old_spans` belongs to")


def test_a_collect_that_leaves_log_probs_behind() -> None:
    lost = ("r, y, lp = collect", "r, y = collect"), ("y0, lp0, where", "y0, where")
    assert refused(ALLOW, *COLLECTED, *lost) == [
        "a correction needs what `y` was sampled under: keep `lp0` as well"
    ]


def test_losses_that_bear_no_lag() -> None:
    distilled = (
        ("    pg = ppo_clip(y, adv, lp_old, clip_low=0.2, clip_high=0.2)\n", ""),
        (
            "kl_loss(y, lp_ref, coef=0.1)",
            "distill(y, lp_ref, divergence=reverse_kl)",
        ),
        ("pg, kl,", "kl,"),
    )
    assert refused(ALLOW, *distilled) == [
        "distill is on-policy: `y` must be of the weights of its step"
    ]
    alone = (
        ("pg, kl,", "kl,"),
        ("    pg = ppo_clip(y, adv, lp_old, clip_low=0.2, clip_high=0.2)\n", ""),
    )
    assert refused(ALLOW, *alone) == [
        "kl_loss has no correction of its own, and no policy loss of `y` has: add one"
    ]


def test_more_than_the_correction_covers() -> None:
    wide = ("staleness=4", "staleness=9")
    assert refused(ALLOW, wide, step=ahead(9)) == [
        "ppo_clip covers a staleness of 8 here (weighted): take staleness=8"
    ]
    assert refused(ALLOW, step=ahead(9)) == [
        "`y` would be up to 9 steps old, the file allows 4: take staleness=4",
        "ppo_clip covers a staleness of 8 here (weighted): take staleness=4",
    ]
    assert refused(ALLOW, *SAMPLED, step=ahead(9, correction="none-if-covered"))[1:] == [
        "ppo_clip covers a staleness of 1 here (anchored at behaviour): take "
        "correction=decoupled and staleness=4, or take staleness=1"
    ]
    bare = ahead(2, correction="none-if-covered")
    assert refused(ALLOW, *SAMPLED, step=bare) == [
        "ppo_clip covers a staleness of 1 here (anchored at behaviour): take "
        "correction=decoupled, or take staleness=1"
    ]
    assert refused(ALLOW, step=bare) == [
        "ppo_clip covers a staleness of 0 here (uncorrected): take correction=decoupled"
    ]
    headed = ahead(1, correction="none-if-covered")
    assert refused(ALLOW, allowing("bound=head"), *SAMPLED, step=headed) == [
        "bound=head lets samples grow older than the window, which only weights correct: take "
        "correction=decoupled"
    ]


def test_nothing_that_could_run_ahead() -> None:
    text = """rpeg 0.1
pipeline p {
  model actor = policy("tiny", optim=adamw(lr=1e-3))
  data train = demos("rows.jsonl")
  allow bounded_async(staleness=4)
  step i < 10 {
    b = batch(train, size=4)
    ce = cross_entropy(b)
    actor@i+1 = update(actor@i, ce, agg=token_mean)
  }
}
"""
    with pytest.raises(PassRefused, match="samples from no model that it trains"):
        run(parse(text), ahead())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"correction": "none"}, "`correction` is decoupled, truncated, icepop, sequence_mask or"),
        ({"bound": "loose"}, "`bound` is strict or head, not loose"),
        ({"overflow": "keep"}, "`overflow` is wait, resume, drop, truncate or defer, not keep"),
        ({"old_spans": "keep"}, "`old_spans` is mask, drop or regenerate, not keep"),
    ],
)
def test_words_that_no_option_has(options: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ahead(2, **options)


def test_staleness_is_not_negative() -> None:
    with pytest.raises(ValueError, match="0 or more, not -1"):
        ahead(-1)


def test_what_is_made_stands_where_its_cause_is() -> None:
    text = grpo(ALLOW, *SAMPLED)
    module = run(parse(text), ahead())
    made = next(op for op in module.walk() if op.name == "rpeg.importance")
    assert str(position_of(made)) == place(text, "ppo_clip(")
    generate = one(module, GenerateOp)
    assert str(position_of(generate.operands[0].owner)) == place(text, "generate(actor")
