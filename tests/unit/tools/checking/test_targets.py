"""`--cluster`, `--gpus`, `--plan`, `--arch`: what they choose, and what to write instead."""

from __future__ import annotations

import argparse

import pytest

from rpeg.frontend import load
from rpeg.passes.base import pipelines
from rpeg.tools.console import USAGE, Failure
from rpeg.tools.predicting.arguments import Target, target
from rpeg.tools.predicting.plans import choose
from tests.unit.passes.pipelines import grpo
from tests.unit.tools.commands import Shell


def plan(name: str, cluster: str, nodes: int, gpus: int) -> str:
    stages = ("y", "r", "lp_old", "lp_ref", "heldout_acc")
    lines = [f"    {stage} on all, par(dp={gpus})" for stage in stages]
    lines += [f"    actor on all, par(dp={gpus}), publish(all, mode=reshard)"]
    pool = f"    pool all = nodes(0..{nodes - 1})"
    return "\n".join([f'  plan {name} on "{cluster}" {{', pool, *lines, "  }\n"])


PLANS = plan("one", "alps-1", 1, 4) + plan("two", "alps-2", 2, 8) + plan("eight", "h100-1", 1, 8)
TEXT = grpo(("size=4", "size=16")).removesuffix("}\n") + PLANS + "}\n"


def chosen(cluster: str | None, plan: str | None = None) -> tuple[str | None, str]:
    loaded = load(TEXT, "p.rpeg")
    assert loaded.module is not None, "\n".join(map(str, loaded.diagnostics))
    found = choose(next(pipelines(loaded.module)), Target(cluster, plan, {}))
    return found.plan and found.plan.title, found.cluster


@pytest.mark.parametrize(
    ("cluster", "plan", "found"),
    [
        ("alps-1", None, ("one", "alps-1")),
        ("alps-2", None, ("two", "alps-2")),
        ("h100", None, ("eight", "h100-1")),
        (None, "two", ("two", "alps-2")),
        ("gh200-1", "one", ("one", "gh200-1")),
        ("alps-4", None, (None, "alps-4")),
    ],
)
def test_a_plan_is_found(
    cluster: str | None, plan: str | None, found: tuple[str | None, str]
) -> None:
    assert chosen(cluster, plan) == found


@pytest.mark.parametrize(
    ("cluster", "plan", "message"),
    [
        (None, None, "--plan NAME takes one of the file's: one (on alps-1), two (on alps-2), "),
        ("alps", None, 'the file has 2 plans for "alps": write --plan one or --plan two'),
        ("alsp-1", None, '--cluster: no cluster "alsp-1": did you mean "alps-1"?'),
        ("a100", "one", "`one` needs a cluster with a size: write --cluster a100-N, of N nodes"),
        ("here.toml", "one", "cannot read here.toml: No such file or directory"),
        (None, "eigth", "there is no plan `eigth`; did you mean `eight`?"),
        (None, "x", "there is no plan `x`; the file has: one, two, eight"),
    ],
)
def test_none_is_found(cluster: str | None, plan: str | None, message: str) -> None:
    with pytest.raises(Failure) as failure:
        chosen(cluster, plan)
    assert message in str(failure.value)
    assert failure.value.code == USAGE


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--gpus 8", "--gpus counts those of a cluster: add --cluster NAME"),
        ("--cluster alps --gpus 6", "6 GPUs are not whole nodes: its nodes have 4 each"),
        ("--cluster alps-16 --gpus 64", "alps-16: it has a size, 16 nodes: leave --gpus out"),
        ("--cluster cpu --gpus 2", "2 GPUs are not whole nodes: it has none"),
        ("--cluster here.toml --gpus 2", "a file says itself how large it is, with max_nodes"),
        ("--arch actor", "--arch actor: write MODEL=NAME, such as actor=qwen2.5-7b"),
        ("--cluster H100-2", 'no cluster "H100-2": did you mean "h100-2"?'),
        (
            "--arch actor=qwen3-8b --arch actor=qwen2.5-7b",
            "--arch: `actor` is named twice: actor=qwen3-8b and actor=qwen2.5-7b; keep one",
        ),
        ("--arch actor=qwen3-9b", 'no architecture "qwen3-9b": did you mean Qwen3-8B'),
    ],
)
def test_wrong_calls(words: str, message: str, shell: Shell) -> None:
    done = shell("check", "p.rpeg", *words.split())
    assert (done.code, done.out) == (2, "")
    assert message in done.err


def test_gpus_are_whole_nodes() -> None:
    options = argparse.Namespace(cluster="alps", gpus=8, plan=None, arch=["ref=qwen3-8b"], set=[])
    options.staleness = options.correction = None
    assert target(options) == Target("alps-2", None, {"ref": "qwen3-8b"}, [])
