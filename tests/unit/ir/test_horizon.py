"""Schedules that outlast the run, and what is never asked: said where they stand."""

from __future__ import annotations

import pytest

from rpeg.frontend import check, load
from rpeg.ir.rules.horizon import times_due

PIPELINE = """\
rpeg 0.1
pipeline p {{
  model actor = policy("models/tiny-qwen2", optim=adamw(lr=1e-4, {adamw}), dtype=fp32)
  model other = policy("models/tiny-qwen2", optim=adamw(lr=1e-4{other}), dtype=fp32)
  data train = prompts("gym:countdown")
  data shown = demos("shown.jsonl")
  verifier c = outcome("gym:countdown")
  tool calc = function("rule:calculator")
  step i < 10 {{
    q = batch(train, size=8)
    y, lp = generate(actor@i, q, calc, n=4, max_tokens=16, {turns}dtype=fp32)
    r = score(c, y)
    adv = group_advantage(r, baseline=mean, scale=std)
    pg = policy_gradient(y, adv)
    b = batch(shown, size=8)
    ce = cross_entropy(b)
    actor@i+1 = update(actor@i, pg, agg=token_mean)
    every(steps=3, from=4) {{
      other@i+1 = update(other@i, ce, agg=token_mean)
    }}
    every({every}) {{
      checkpoint()
    }}
  }}
}}
"""
RIGHT = {"adamw": "warmup=9, schedule=cosine", "other": "", "every": "steps=5"}
RIGHT |= {"turns": "max_turns=2, "}


def warnings(**changes: str) -> list[str]:
    loaded = load(PIPELINE.format(**RIGHT | changes), "p.rpeg")
    assert loaded.module is not None, loaded.diagnostics
    return [f"{d.at}: {d.message}" for d in loaded.diagnostics if d.rule == "setting-range"]


def test_what_ends_in_time_is_sound() -> None:
    assert warnings() == []
    assert warnings(adamw="warmup=10", other=", warmup=2", every="steps=10, from=9") == []
    assert warnings(adamw="schedule=linear", every="steps=1") == []


@pytest.mark.parametrize(
    ("part", "written", "message"),
    [
        (
            "adamw",
            "warmup=11",
            "3:73: warmup=11: the pipeline updates `actor` 10 times, so that its lr is never "
            "reached: write warmup=10 or less",
        ),
        (
            "adamw",
            "warmup=10, schedule=cosine",
            "3:73: warmup=10: the pipeline updates `actor` 10 times, so that schedule=cosine never "
            "acts: write warmup=9 or less",
        ),
        (
            "other",
            ", warmup=3",
            "4:73: warmup=3: the pipeline updates `other` 2 times, so that its lr is never "
            "reached: write warmup=2 or less",
        ),
        ("every", "steps=11", "21:17: steps=11: never due in the 10 steps of the pipeline: write "),
        (
            "every",
            "steps=4, from=8",
            "21:25: from=8: never due in the 10 steps of the pipeline: write from=7 or less",
        ),
        ("turns", "", "11:13: max_turns=1: `calc` is never called, for an answer starts another "),
    ],
)
def test_what_never_acts(part: str, written: str, message: str) -> None:
    (found,) = warnings(**{part: written})
    assert found.startswith(message), found


@pytest.mark.parametrize(("period", "start"), [(1, 0), (3, 0), (3, 4), (5, 5), (7, 20), (20, 0)])
def test_how_often_an_every_is_due(period: int, start: int) -> None:
    by_hand = sum((i + 1) % period == 0 and i >= start for i in range(12))
    assert times_due(12, period, start) == by_hand


@pytest.mark.parametrize(
    ("form", "uri", "message"),
    [
        (
            "environment",
            "gym:countdown",
            "`gym:countdown` names no environment: write python:module:",
        ),
        (
            "environment",
            "rule:calculator",
            "`rule:calculator` names no environment: write python:mod",
        ),
        ("environment", "worlds", "`worlds` names no environment: write python:module:name"),
        (
            "function",
            "hf:a/b",
            "`hf:a/b` names no function: write rule:calculator or python:module:f",
        ),
        ("function", "rule:calc", "there is no rule `calc`; known: calculator"),
    ],
)
def test_sources_of_tools(form: str, uri: str, message: str) -> None:
    text = PIPELINE.format(**RIGHT).replace('function("rule:calculator")', f'{form}("{uri}")')
    (found,) = [d for d in check(text, "p.rpeg") if d.severity == "error"]
    assert found.message.startswith(message)
    assert str(found.at).startswith("8:")


def test_an_environment_answers_alone() -> None:
    more = '  tool world = environment("python:worlds:Grid")\n  step'
    text = PIPELINE.format(**RIGHT).replace("  step", more, 1).replace("calc, n", "calc, world, n")
    (found,) = [d for d in check(text, "p.rpeg") if d.severity == "error"]
    assert found.message == "`world` answers every turn: give it without other tools"
    assert str(found.at) == "12:40"
