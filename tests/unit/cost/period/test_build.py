"""The task graph of a schedule: ten pipelines against graphs that were written by hand."""

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from xdsl.context import Context
from xdsl.ir import Operation

from rpeg.cost.period.build import task_graph
from rpeg.cost.period.graph import Edge, GraphError, TaskGraph, Why
from rpeg.cost.period.steady import steady
from rpeg.ir.base import RpegOp
from rpeg.ir.ops.declare import PipelineOp
from rpeg.ir.text.parse import parse_module
from rpeg.passes.rpeg_annotate_parallelism import RpegAnnotateParallelismPass
from rpeg.passes.rpeg_fuse_inference import RpegFuseInferencePass
from rpeg.passes.rpeg_schedule import RpegSchedulePass
from rpeg.tools.compiling import one_pipeline, run_passes
from rpeg.tools.console import read
from tests.unit.cost.period.by_hand import GRAPHS

EXAMPLES = Path(__file__).parents[4] / "examples"
L1 = Path(__file__).parents[2] / "interp" / "l1"
CHUNKS = 8


def at_l2(example: str) -> PipelineOp:
    """A pipeline of an example at L2: under its plan, or on one pool of two."""
    name, _, plan = example.partition("@")
    placing = RpegAnnotateParallelismPass(plan=plan) if plan else RpegAnnotateParallelismPass(dp=2)
    source = read(str(EXAMPLES / name))
    module, pipeline, _ = one_pipeline(source, ())
    run_passes(module, [placing, RpegFuseInferencePass(), RpegSchedulePass()], source)
    return pipeline


@functools.cache
def graph_of(example: str) -> TaskGraph:
    apart = {"r": "checkers"} if "alps64" in example else {}
    return task_graph(at_l2(example), one_second, apart)


def one_second(op: Operation) -> float:
    """A second for a stage and for each movement."""
    takes = isinstance(op, RpegOp) and (op.PLACED or op.name in ("rpeg.transfer", "rpeg.publish"))
    return 1.0 if takes else 0.0


def by_hand(example: str) -> tuple[dict[str, list[str]], set[Edge]]:
    """(tasks of each resource, edges) of a text of `by_hand`."""
    resources: dict[str, list[str]] = {}
    edges: set[Edge] = set()
    for line in GRAPHS[example].strip().splitlines():
        head, _, rest = line.partition(": ")
        if head.startswith("resource "):
            names = (n for name in rest.split(", ") for n in _every(name))
            resources.setdefault(head.removeprefix("resource "), []).extend(names)
        else:
            assert head in get_args(Why)
            edges |= set(_edges(head, rest))
    return resources, edges


def _every(name: str) -> list[str]:
    numbers = range(1, CHUNKS + 1) if "#" in name else range(1)
    return [name.replace("#", f"{number}/{CHUNKS}") for number in numbers]


def _edges(why: Why, text: str) -> Iterator[Edge]:
    source, _, targets = text.partition(" > ")
    for target in targets.split(", "):
        name, _, distance = target.partition("+")
        ends = _every(name)
        if name.endswith(" next"):
            ends = _every(name.replace("next", "#"))[1:]
        for start, end in zip(_every(source), ends, strict=False):
            yield Edge(start, end, int(distance or 0), why)


@pytest.mark.parametrize("example", GRAPHS)
def test_graph_is_that_written_by_hand(example: str) -> None:
    resources, edges = by_hand(example)
    graph = graph_of(example)
    assert {name: [t.name for t in tasks] for name, tasks in graph.resources.items()} == resources
    assert set(graph.edges) == edges
    assert len(graph.edges) == len(edges)


@pytest.mark.parametrize("example", GRAPHS)
def test_each_runs(example: str) -> None:
    graph = graph_of(example)
    found = steady(graph)
    assert found.period_s >= max(found.bounds.load, found.bounds.cycle, found.bounds.head_body_tail)
    assert set(found.critical_cycle) <= {task.name for task in graph.tasks}
    assert sum(span.end_s - span.start_s for span in found.spans) == pytest.approx(
        sum(task.seconds for task in graph.tasks)
    )


def test_times_are_those_asked_for() -> None:
    graph = graph_of("async_grpo_alps64.rpeg@alps64")
    assert sum(task.seconds for task in graph.tasks if task.stage == "y") == pytest.approx(1)
    assert sum(task.seconds for task in graph.tasks if task.stage == "aime") == 1
    assert {task.stage for task in graph.tasks if re.fullmatch(r"r \d/8", task.name)} == {"r"}


def test_one_pool_gains_nothing_by_a_window() -> None:
    found = steady(graph_of("async_corrections.rpeg:icepop"))
    assert found.period_s == found.bounds.load == 5  # y, r, prox, actor, publish


def test_only_a_schedule_has_a_graph() -> None:
    source = read(str(EXAMPLES / "sort_digits.rpeg:grpo"))
    _, pipeline, _ = one_pipeline(source, ())
    with pytest.raises(GraphError, match="run rpeg-schedule first"):
        task_graph(pipeline, one_second)


def scheduled(name: str, *change: str) -> TaskGraph:
    """The graph of a text of L1, with one thing changed."""
    text = (L1 / name).read_text(encoding="utf-8").replace(*change)
    module, _, problems = parse_module(text, name)
    assert module is not None and not problems
    RpegSchedulePass().apply(Context(), module)
    pipeline = next(op for op in module.walk() if isinstance(op, PipelineOp))
    return task_graph(pipeline, one_second)


@pytest.mark.parametrize(("groups", "steps"), [(4, 1), (8, 2), (11, 2)])
def test_a_buffer_holds_so_many_steps(groups: int, steps: int) -> None:
    graph = scheduled("buffered.mlir", "capacity = 4", f"capacity = {groups}")
    waits = [edge for edge in graph.edges if edge.why == "back-pressure"]
    assert waits == [Edge("popped", "queue", steps, "back-pressure")]


def test_chunks_need_the_chunks_that_hold_their_samples() -> None:
    """16 samples in groups of four, and in pairs."""
    graph = scheduled("streamed.mlir", "  rpeg.step", "  rpeg.ranks @all 0 to 1\n  rpeg.step")
    assert set(graph.edges) >= {
        *(Edge("y 2/8", "groups 1/4"), Edge("y 8/8", "groups 4/4"), Edge("y 3/8", "pairs 3/8")),
        *(Edge("groups 3/4", "short 3/4"), Edge("pairs 5/8", "lp_ref_chunks 5/8")),
        *(Edge("adv_chunks 4/4", "adv"), Edge("lp_ref_chunks 8/8", "lp_ref")),
    }
    assert Edge("adv_chunks 3/4", "adv") not in graph.edges


def test_an_update_takes_chunks_as_they_come() -> None:
    ranks = "  rpeg.ranks @all 0 to 1\n  rpeg.step"
    graph = scheduled("streamed_update.mlir", "  rpeg.step", ranks)
    assert set(graph.edges) >= {Edge("pg 1/4", "actor 1/4"), Edge("actor 4/4", "y 1/4", 1, "state")}


STREAMED = """
rpeg 0.1
pipeline p {
  model actor = policy("hf:Qwen/Qwen2.5-7B", optim=adamw(lr=1e-6))
  model judge = reward("hf:Qwen/Qwen2.5-7B")
  data train = prompts("gym:countdown")
  step i < 9 {
    q = batch(train, size=8)
    y, lp = generate(actor@i, q, n=2, max_tokens=64)
    r = score(judge, y)
    adv = group_advantage(r, baseline=mean, scale=std)
    pg = ppo_clip(y, adv, lp, clip_low=0.2, clip_high=0.2)
    actor@i+1 = update(actor@i, pg, agg=token_mean)
  }
  plan two on "h100-2" {
    pool rollout = nodes(0..0)
    pool trainer = nodes(1..1)
    y on rollout, par(dp=8), engine(name=vllm)
    r on trainer, par(dp=8), stream(y, CHUNK)
    actor on trainer, par(dp=8), publish(rollout, mode=reshard)
  }
}
"""


@pytest.mark.parametrize(
    ("chunk", "period_s"),
    [("samples=8", 3.5), ("samples=4", 3.25), ("groups=2", 3.25), ("groups=1", 3.125)],
)
def test_more_chunks_wait_less(tmp_path: Path, chunk: str, period_s: float) -> None:
    """Of generate, score, update and publish, the score hides in the generate but for its last
    chunk.
    """
    file = tmp_path / "streamed.rpeg"
    file.write_text(STREAMED.replace("CHUNK", chunk), encoding="utf-8")
    graph = task_graph(
        at_l2(f"{file}@two"), lambda op: one_second(op) if op.name != "rpeg.transfer" else 0.0
    )
    assert steady(graph).period_s == pytest.approx(period_s)


VALUES = "rpeg.values"
STALE = (
    ("generate(actor@i, q", "generate(actor@[i-2..i], q"),
    ("adv, lp_old, clip", "adv, lp_old, w, clip"),
    ("    pg = ppo", "    w = importance(lp_old, lp)\n    pg = ppo"),
)
"""Has the rollouts of the example run ahead."""


def test_pools_that_train_end_their_steps_together(tmp_path: Path) -> None:
    """A critic's pool has its samples early, and waits for the actor's, which keeps the books."""
    text = (EXAMPLES / "sort_digits_ppo.rpeg").read_text(encoding="utf-8")
    for before, after in STALE:
        assert before in text
        text = text.replace(before, after, 1)
    path = tmp_path / "stale.rpeg"
    path.write_text(text, encoding="utf-8")
    source = read(f"{path}:ppo")
    module, pipeline, _ = one_pipeline(source, ())
    run_passes(module, [RpegAnnotateParallelismPass(plan="apart"), RpegSchedulePass()], source)
    graph = task_graph(pipeline, lambda op: (6.0 if op.name == VALUES else 1.0) * one_second(op))
    found = {(e.source, e.target, e.distance) for e in graph.edges if e.why == "books"}
    first, last = (graph.resources["trainer"][place].name for place in (0, -1))
    assert found == {(last, "v", 1), ("critic", first, 1)}
    assert steady(graph).period_s > steady(graph.without("books")).period_s
