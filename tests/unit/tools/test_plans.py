"""Plans on the command line: what compiles on the cores of a machine, what to write instead."""

from __future__ import annotations

import pytest

from tests.unit.passes.pipelines import grpo
from tests.unit.tools.commands import PLAN, Shell, message

ON_CORES = PLAN.replace("h100-1", "cpu").replace("gpus(0..3)", "cores(0..0, per_node=2)")
HERE = ON_CORES.replace("r on cpu", "r on all, par(dp=2)").replace("dp=2, tp=2", "dp=2")


def planned(plan: str) -> str:
    return grpo().removesuffix("}\n") + plan + "}\n"


def test_a_plan_on_cores(shell: Shell) -> None:
    shell.write(text=planned(HERE), name="here.rpeg")
    done = shell("compile", "-o", "out", "--plan", "wide", "here.rpeg")
    assert done.code == 0, done.err
    assert "2 processes" in done.out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--plan", "wide"), False),
        (("--plan", "open"), True),
        (("--layout", "dp2"), False),
        (("--processes", "2"), False),
    ],
)
def test_remarks_are_about_the_plan_that_is_taken(
    words: tuple[str, ...], told: bool, shell: Shell
) -> None:
    unfinished = HERE.replace("plan wide", "plan open").replace(
        "    lp_ref on all, par(dp=2)\n", ""
    )
    shell.write(text=planned(HERE + unfinished), name="here.rpeg")
    assert "the plan leaves lp_ref open" in shell("check", "here.rpeg").err
    assert ("lp_ref open" in shell("compile", "-o", "out", *words, "here.rpeg").err) == told


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        (
            "par(dp=2), engine",
            "par(dp=4), engine",
            "tp x pp x cp x dp = 4, the pool `all` has 2 cores, one for each process: write dp=2",
        ),
        (
            "cores(0..0, per_node=2)",
            "gpus(0..1)",
            "the cluster has no GPUs: write cores(0..0, per_node=N)",
        ),
        (
            "par(dp=2), engine",
            "par(dp=2, ep=4), engine",
            "expert parallelism (ep) does not compile yet: write ep=1; as it stands, "
            "ep=4 does not divide dp x cp",
        ),
        (
            "par(dp=2), engine",
            "par(dp=2, cp=2), engine",
            "context parallelism (cp) does not compile yet: write cp=1; as it stands, "
            "tp x pp x cp x dp = 4, the pool `all` has 2 cores, one for each process",
        ),
        (
            "lp_ref on all, par(dp=2)",
            "lp_ref on all, par(dp=2, zero=1)",
            "zero=1 shards an optimizer, and `ref` has none: leave it out",
        ),
        (
            "cores(0..0, per_node=2)",
            "nodes(0..0)",
            "the cluster has no GPUs: write cores(0..0, per_node=N)",
        ),
    ],
    ids=["too many processes", "gpus", "ep", "cp", "zero of a frozen model", "nodes"],
)
def test_mistakes_on_cores(old: str, new: str, text: str, shell: Shell) -> None:
    assert old in HERE
    shell.write(text=planned(HERE.replace(old, new)), name="here.rpeg")
    done = shell("compile", "-o", "out", "--plan", "wide", "here.rpeg")
    assert (done.code, message(done.err).split("error: ")[1]) == (1, text)


def test_an_empty_pool(shell: Shell) -> None:
    shell.write(text=planned(HERE.replace("per_node=2", "per_node=0")), name="here.rpeg")
    err = shell("compile", "-o", "out", "--plan", "wide", "here.rpeg").err
    assert "per_node=0: expected at least 1" in err
    assert "error: the pool `all` is empty: give it per_node=1 or more" in err
    assert "write dp=0" not in err


def test_the_width_that_fits(shell: Shell) -> None:
    plan = HERE.replace('on "cpu"', 'on "h100-1"').replace("cores(0..0, per_node=2)", "gpus(0..3)")
    shell.write(text=planned(plan), name="here.rpeg")
    done = shell("check", "here.rpeg")
    assert "tp x pp x cp x dp = 2, the pool `all` has 4 GPUs: write dp=4" in done.err
