"""`rpeg check --cluster`: order and staleness are proved, or what breaks them is named."""

from __future__ import annotations

import json
from pathlib import Path

from tests.unit.passes.pipelines import grpo, place
from tests.unit.tools.commands import PLAN, Done, Shell, message

EXAMPLES = Path(__file__).parents[4] / "examples"

SHAPE = "--arch=actor=qwen2.5-0.5b"


def planned(*changes: tuple[str, str]) -> str:
    return grpo(*changes).removesuffix("}\n") + PLAN + "}\n"


def test_order_and_staleness(shell: Shell) -> None:
    shell.write(text=planned())
    done = shell("check", "p.rpeg", "--cluster", "h100-1", SHAPE)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[1].startswith("  plan wide on h100-1: ")
    assert done.out.splitlines()[2:4] == [
        "  order: 11 tasks on all: no deadlock",
        "  staleness: y: sampled by the weights that it trains",
    ]


def test_two_pools(shell: Shell) -> None:
    done = shell("check", str(EXAMPLES / "async_two_pools.rpeg"), "--cluster", "cpu")
    assert "  order: 6 tasks on rollout, 10 tasks on trainer: no deadlock" in done.out
    assert "  staleness: y: at most 2 steps old, every token (bound=strict)" in done.out


def test_without_a_plan_and_speeds(shell: Shell) -> None:
    shell.write()
    done = shell("check", "p.rpeg", "--cluster", "cpu")
    assert done.code == 0
    first, order, staleness, plan, memory = done.out.splitlines()[1:]
    assert first == "  plan default on cpu"
    assert order == "  order: 11 tasks on all: no deadlock"
    assert staleness == "  staleness: y: sampled by the weights that it trains"
    assert plan.startswith('  note: the file has no plan for "cpu": this is for dp=')
    assert memory.startswith('  note: memory is not checked: "cpu" does not say how fast')


def test_a_deadlock(shell: Shell) -> None:
    """Evaluation of the step's first weights waits for its end, and its last weights for that."""
    text = shell.write(text=planned(("eval(actor@i+1", "eval(actor@i")))
    done = shell("check", "p.rpeg", "--cluster", "h100-1")
    assert (done.code, done.out) == (1, "")
    assert message(done.err).startswith(f"p.rpeg:{place(text, 'update(')}: error: no order of")
    assert "`publish_actor` runs after" in done.err
    assert done.err.count("no order of") == 1, "and no note that repeats it"


def test_a_sample_too_old(shell: Shell) -> None:
    text = shell.write(text=planned(("generate(actor@i,", "generate(actor@[i-3..i],")))
    done = shell("check", "p.rpeg", "--cluster", "h100-1")
    assert (done.code, done.out) == (1, "")
    assert message(done.err).startswith(f"p.rpeg:{place(text, 'ppo_clip')}: error: ")
    assert "3" in message(done.err)


def test_a_plan_on_too_small_a_cluster(shell: Shell) -> None:
    text = shell.write(text=planned().replace("gpus(0..3)", "gpus(4..7)"))
    done = shell("check", "p.rpeg", "--cluster", "alps-1", "--plan", "wide")
    at = place(text, "4..7")
    assert message(done.err) == f"p.rpeg:{at}: error: 4..7: the cluster has gpus 0..3"


def test_as_json(shell: Shell) -> None:
    shell.write(text=planned())
    told = json.loads(shell("check", "p.rpeg", "--plan", "wide", "--json", SHAPE).out)
    (found,) = told["findings"]
    assert told["messages"] == []
    assert (found["plan"], found["cluster"]) == ("wide", "h100-1")
    assert found["order"]["all"][0] == "q"
    assert found["staleness"] == [{"stage": "y", "model": "actor", "oldest": 0, "bound": ""}]


def test_a_shape_that_nothing_tells(shell: Shell) -> None:
    text = shell.write(text=planned(('"tiny"', '"hf:nobody/large"')))
    done = shell("check", "p.rpeg", "--cluster", "h100-1")
    told = f"p.rpeg:{place(text, 'actor = policy')}: error: nothing tells the shape of `actor` "
    assert message(done.err).startswith(told)
    assert "--arch actor=" in message(done.err)


def test_a_shape_of_no_model(shell: Shell) -> None:
    shell.write(text=planned())
    done = shell("check", "p.rpeg", "--cluster", "h100-1", "--arch", "critic=qwen3-8b")
    assert done.code == 2
    assert "--arch critic=qwen3-8b: there is no model `critic`; the pipeline has: " in done.err


def said(done: Done) -> str:
    return done.out + done.err


def test_gpus_that_no_pool_has(shell: Shell) -> None:
    """Of a cluster that the plan was not written for."""
    shell.write(text=planned())
    told = "12 of the 16 GPUs of alps-4 are in no pool of plan `wide`: they do nothing"
    assert told in said(shell("check", "p.rpeg", "--cluster", "alps-4", "--plan", "wide", SHAPE))
    assert "do nothing" not in said(shell("check", "p.rpeg", "--cluster", "h100-1", SHAPE))


def test_more_processes_than_a_node_has_cores(shell: Shell) -> None:
    text = shell.write(text=planned().replace("per_node=4", "per_node=400"))
    at = place(text, "400)")
    told = f"p.rpeg:{at}: warning: per_node=400: a node of h100-1 has"
    for words in (("check", "p.rpeg"), ("compile", "p.rpeg", "--plan", "wide", "-o", "out")):
        assert told in shell(*words).err
    shell.write(text=planned())
    assert "per_node" not in shell("check", "p.rpeg").err
