"""What a plan's line divides over its data-parallel processes, and where it says so."""

from __future__ import annotations

from rpeg.frontend import load
from rpeg.ir.rules.shares import uneven
from rpeg.ir.rules.verify import diagnose
from rpeg.ir.text.parse import parse_module
from rpeg.passes.base import pipelines
from rpeg.planner.default import divisible
from tests.unit.ir.test_rrt import place
from tests.unit.tools.opt import opt

TEXT = """rpeg 0.1
pipeline p {
  model actor = policy("models/tiny-qwen2", optim=adamw(lr=1e-6))
  model ref = policy(actor@0)
  data train = prompts("train.jsonl")
  verifier good = outcome("rule:math")
  step i < 9 {
    q = batch(train, size=48)
    y, lp = generate(actor@i, q, n=3, max_tokens=64)
    r = score(good, y)
    adv = group_advantage(r, baseline=mean, scale=std)
    lref = logprob(ref, y)
    pg = ppo_clip(y, adv, lp, clip_low=0.2, clip_high=0.2)
    kl = kl_loss(y, lref, coef=0.1)
    actor@i+1 = update(actor@i, pg, kl, agg=token_mean, minibatches=4)
  }
  plan one on "h100-2" {
    pool all = nodes(0..1)
    y on all, par(dp=16), engine(name=embedded)
    r on all, par(dp=16)
    lref on all, par(tp=2, dp=8)
    actor on all, par(tp=4, dp=4), publish(all, mode=reshard)
  }
}
"""


def messages(text: str) -> list[str]:
    return [f"{d.at}: {d.message}" for d in load(text, "p.rpeg").diagnostics]


def test_it_divides() -> None:
    assert messages(TEXT) == []
    module = load(TEXT, "p.rpeg").module
    assert module is not None
    assert divisible(next(pipelines(module))) == 12


def test_each_line_says_what_it_can_not_split() -> None:
    text = TEXT.replace("size=48", "size=44")
    groups = "does not divide over {dp} processes (dp={dp}): write a multiple of {dp}, or a dp that"
    end = "\n"
    wide, narrow = groups.format(dp=16), groups.format(dp=8)
    assert messages(text) == [
        f"{place(text, 'par(dp=16), engine')}: a batch of 44 rows {wide} divides 44, such as 11",
        f"{place(text, 'par(dp=16)' + end)}: a batch of 44 rows {wide} divides 44, such as 11",
        f"{place(text, 'par(tp=2')}: a batch of 44 rows {narrow} divides 44, such as 4",
        f"{place(text, 'par(tp=4')}: a minibatch of 132 / 4 = 33 samples "
        f"{groups.format(dp=4)} divides 33, such as 3",
    ]


def test_an_engine_that_refills_needs_no_equal_shares() -> None:
    text = TEXT.replace("size=48", "size=40").replace("name=embedded", "name=vllm")
    said = [m.split(": ")[0] for m in messages(text)]
    assert said == [place(text, "par(dp=16)\n"), place(text, "par(tp=4")]


def test_a_module_at_l1_is_held_to_it_too() -> None:
    run = opt("-f", "rpeg", "-p", "rpeg-annotate-parallelism{plan=one}", stdin=TEXT)
    text = run.out.replace("48", "24")
    parsed, sources, problems = parse_module(text, "p.mlir")
    assert parsed is not None, problems
    found = [d for d in diagnose(parsed, sources) if d.rule == "uneven-shares"]
    assert [d.message.partition(" does")[0] for d in found] == [
        "a batch of 24 rows",
        "a minibatch of 72 / 4 = 18 samples",
    ]


def test_what_is_no_count_is_left_to_the_rule_of_settings() -> None:
    run = opt("-f", "rpeg", "-p", "rpeg-annotate-parallelism{plan=one}", stdin=TEXT)
    parsed, sources, problems = parse_module(
        run.out.replace("minibatches = 4 : i64", 'minibatches = "4"'), "p.mlir"
    )
    assert parsed is not None, problems
    assert {d.rule for d in diagnose(parsed, sources)} == {"setting-kind"}


def test_figures_of_any_size_are_spoken_of() -> None:
    text = uneven((10**18, "a batch"), 10**18 - 1)
    assert text is not None and text.endswith("such as 65536")
