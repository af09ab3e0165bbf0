"""Memory that is not enough: who lacks it, when, for what, from which lengths on."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from rpeg.cost.estimate import PoolMemory
from rpeg.passes.base import pipelines, step
from rpeg.passes.rpeg_annotate_parallelism import RpegAnnotateParallelismPass
from rpeg.tools.checking.memory import GIB, memory_lines, memory_problems
from tests.unit.passes.pipelines import grpo, parse, place, run
from tests.unit.tools.commands import PLAN, Shell

EXAMPLES = Path(__file__).parents[4] / "examples"
TEXT = grpo().removesuffix("}\n") + PLAN + "}\n"


def held(quantile: str, at: str | None = "actor", kind: str = "gpu", **terms: float) -> PoolMemory:
    """So many GiB of 80."""
    found = {name: size * GIB for name, size in terms.items()}
    total = sum(found.values())
    assert kind == "gpu" or kind == "host"
    return PoolMemory("all", kind, 80 * GIB, total, quantile, at, found, ((0.0, total),))


def problems(*memory: PoolMemory, text: str = TEXT) -> list[str]:
    module = run(parse(text), RpegAnnotateParallelismPass(plan="wide"))
    return [str(d) for d in memory_problems(memory, step(next(pipelines(module))), "p.rpeg")]


def test_what_fits_is_no_problem() -> None:
    assert problems(held("p50", weights=40, kv=40), held("cap", kind="host", optimizer=80)) == []


def test_one_message_for_all_lengths() -> None:
    lengths = {"p50": 20.0, "p95": 45.0, "p99": 60.0, "cap": 70.0}
    memory = [held(name, weights=36.0, activations=size) for name, size in lengths.items()]
    assert problems(*memory) == [
        f"p.rpeg:{place(TEXT, 'actor on all')}: error: the busiest GPU of `all` has 80.0 GiB and "
        "needs 81.0 while `actor` runs, for responses of length p95 and longer: activations 45.0, "
        "weights 36.0: write recompute=full, or a smaller mb(tokens=...)"
    ]


@pytest.mark.parametrize(
    ("memory", "line", "text"),
    [
        (held("cap", "y", kv=81), "y on all", "for responses of the longest length allowed: kv"),
        (held("p99", "publish_actor", buffers=99), "actor on all", "a smaller publish(bucket=...)"),
        (held("p50", None, weights=90), "y on all", "needs 90.0 between stages"),
        (held("p50", None, "host", optimizer=90), "y on all", "a host of `all` has 80.0 GiB"),
        (held("p50", None, "host", optimizer=90), "y on all", "resid(opt=always)"),
    ],
)
def test_where_and_what_to_write(memory: PoolMemory, line: str, text: str) -> None:
    (message,) = problems(memory)
    assert message.startswith(f"p.rpeg:{place(TEXT, line)}: error: ")
    assert text in message


@pytest.mark.parametrize(
    ("clauses", "way"),
    [
        ("par(dp=2, tp=2)", "write zero=1, or resid(opt=host) on lines of updates, or a wider tp"),
        ("par(dp=2, tp=2, zero=1)", "write resid(opt=host) on lines of updates, or a wider tp"),
        ("par(dp=1, tp=4), resid(opt=host)", "write a wider tp or pp"),
    ],
)
def test_what_the_plan_says_is_not_offered(clauses: str, way: str) -> None:
    text = TEXT.replace("actor on all, par(dp=2, tp=2)", f"actor on all, {clauses}")
    (message,) = problems(held("p50", optimizer=90), text=text)
    assert way in message


def test_gpus_and_hosts_have_messages_of_their_own() -> None:
    assert len(problems(held("p50", kv=90), held("p50", None, "host", optimizer=90))) == 2


def test_gpus_are_named_by_rank() -> None:
    few = replace(held("p50", kv=90), ranks=(8, 11))
    one = replace(few, ranks=(3, 3))
    assert "the busiest GPU of `all` (any of 8 to 11) has 80.0 GiB" in problems(few)[0]
    assert "the busiest GPU of `all` (3) has 80.0 GiB" in problems(one)[0]


def test_lines() -> None:
    memory = [held("p50", kv=10, weights=2), held("cap", kv=20, weights=2)]
    assert list(memory_lines(memory)) == [
        "memory: the busiest GPU of `all`, 80.0 GiB: 12.0 at p50, 22.0 at cap while `actor` runs: "
        "kv 20.0, weights 2.0"
    ]
    assert "12.0 at every length" in next(iter(memory_lines(memory[:1])))


PLANS = [
    (path.name, name)
    for path in sorted(EXAMPLES.glob("*.rpeg"))
    for name, cluster in re.findall(r'^ *plan (\w+) on "([^"]+)"', path.read_text("utf-8"), re.M)
    if cluster != "cpu"
]


@pytest.mark.parametrize(("name", "plan"), PLANS)
def test_plans_of_examples_fit(name: str, plan: str, shell: Shell) -> None:
    done = shell("check", str(EXAMPLES / name), "--plan", plan, "--json")
    told = json.loads(done.out)
    (found,) = told["findings"]
    assert done.code == 0
    assert not [m for m in told["messages"] if m["severity"] == "error"]
    assert {m["kind"] for m in found["estimate"]["memory"]} == {"gpu", "host"}


def test_ppo_of_7b_with_its_optimizers_on_the_gpus(shell: Shell) -> None:
    text = (EXAMPLES / "ppo_7b_gh200.rpeg").read_text(encoding="utf-8")
    text = text.replace(", resid(opt=host)", "")
    text = shell.write(text=text.replace("resid(opt=host),", ""))
    done = shell("check", "p.rpeg", "--cluster", "alps-1")
    (message,) = [line for line in done.err.splitlines() if "error" in line]
    assert message.startswith(f"p.rpeg:{place(text, 'y on all, par(tp=1, dp=4)')}: error: ")
    assert "while `y` runs, for responses of length p50 and longer: optimizer" in message
    assert done.code == 1
