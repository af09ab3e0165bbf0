"""What `rpeg compile` refuses, `rpeg check` remarks on, and nothing else."""

from __future__ import annotations

import json
import re

import pytest

from tests.unit.passes.pipelines import place
from tests.unit.tools.commands import PLAN, Shell, message

EVERYTHING = (
    ('policy("tiny", optim', 'policy("tiny", lora=lora(rank=4, alpha=8), optim'),
    ("fp32)\n    r =", "fp32, routing=record)\n    r ="),
    ("agg=token_mean)", "agg=token_mean, routing=replay)"),
)
BARE = """  plan bare on "cpu" {
    pool all = cores(0..0, per_node=2)
    y on all
    r on all
    lp_old on all
    lp_ref on all
    actor on all, publish(all, mode=bcast)
    heldout_acc on all
  }
"""
BCAST = PLAN.replace("mode=reshard", "mode=bcast")


def said(err: str, severity: str) -> list[str]:
    """Messages of a severity, each with its place."""
    return re.findall(rf"^p\.rpeg:(\d+:\d+): {severity}: (.*)$", err, re.M)


@pytest.mark.parametrize("plan", [None, "wide", "bare"])
def test_check_remarks_on_what_compile_refuses(plan: str | None, shell: Shell) -> None:
    text = shell.write(*EVERYTHING)
    shell.write(text=text.removesuffix("}\n") + BCAST + BARE + "}\n")
    by_plan = ["--plan", plan] if plan is not None else []
    compiled = shell("compile", "p.rpeg", "-o", "out", *by_plan)
    assert compiled.code == 1
    refused = said(compiled.err, "error")
    checked = shell("check", "p.rpeg")
    assert checked.code == 0
    assert checked.out.endswith("operations); rpeg compile refuses it\n")
    why = [
        (at, re.sub(r"^rpeg compile.* refuses this: ", "", m))
        for at, m in said(checked.err, "note")
    ]
    assert len(refused) >= 3
    assert set(refused) <= set(why)
    assert len(why) == len(set(why))


def test_a_plan_that_does_not_compile(shell: Shell) -> None:
    """The pipeline does, and the note says by which command it does not."""
    text = shell.write().removesuffix("}\n") + BCAST + "}\n"
    shell.write(text=text)
    done = shell("check", "p.rpeg")
    assert "refuses it" not in done.out
    assert message(done.err) == (
        f"p.rpeg:{place(text, 'actor on')}: note: rpeg compile --plan wide refuses this: "
        "publish(to=all, mode=bcast) does not compile yet: write mode=reshard, and nothing else"
    )


def test_lines_without_a_layout_are_told_together(shell: Shell) -> None:
    text = shell.write().removesuffix("}\n") + BARE + "}\n"
    shell.write(text=text)
    found = said(shell("check", "p.rpeg").err, "note")
    assert found == [
        (
            place(text, f"{stage} on all"),
            "rpeg compile --plan bare refuses this: "
            f"`{stage}` needs par(dp=...) on its line of plan `bare`",
        )
        for stage in ("y", "r", "lp_ref", "actor", "heldout_acc")
    ]


def test_on_a_cluster_notes_are_about_its_plan(shell: Shell) -> None:
    shell.write(text=shell.write().removesuffix("}\n") + BCAST + BARE + "}\n")
    err = shell("check", "p.rpeg", "--plan", "wide", "--arch", "actor=qwen2.5-7b").err
    assert "--plan wide refuses" in err
    assert "--plan bare" not in err


def test_notes_as_json(shell: Shell) -> None:
    text = shell.write(EVERYTHING[1])
    (found,) = json.loads(shell("check", "p.rpeg", "--json").out)
    assert (found["severity"], f"{found['line']}:{found['column']}") == (
        "note",
        place(text, "generate("),
    )


@pytest.mark.parametrize("words", [("compile", "-o", "out"), ("run",)])
def test_everything_that_stops_a_program_is_told_at_once(
    words: tuple[str, ...], shell: Shell
) -> None:
    """User code that is not permitted does not hide what does not compile."""
    shell.write(("rule:exact_match", "python:mine:reward"), *EVERYTHING)
    before = shell.names()
    done = shell(*words, "p.rpeg")
    assert done.code == 1
    messages = [m for _, m in said(done.err, "error")]
    assert any("--allow-python" in m for m in messages)
    assert sum("does not compile" in m or "do not compile" in m for m in messages) == 3
    assert shell.names() == before
