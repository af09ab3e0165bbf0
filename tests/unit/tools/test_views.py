"""Views of a step's graph: drawings that hold together, bytes that add up."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from rpeg.frontend import load
from rpeg.ir.ops.declare import PipelineOp
from rpeg.ir.text.diagnostics import DiagnosticsError
from rpeg.ir.text.parse import parse_module
from rpeg.ir.text.sources import Sources
from rpeg.tools.opt.passes import apply, parse_passes
from rpeg.tools.opt.targets import TARGETS as WRITERS
from rpeg.tools.views.dot import dot
from rpeg.tools.views.graph import Edge, Graph, GraphBuilder, Node, graphs
from rpeg.tools.views.mermaid import mermaid
from rpeg.tools.views.sizes import shown_bytes
from tests.unit.tools.opt import EXAMPLES, ROOT, opt

GOLDEN = ROOT / "tests" / "golden" / "views"
TARGETS = ["dot", "mermaid", "json", "summary"]
STEM = {path.stem: path for path in EXAMPLES}
LOWERED = (
    "rpeg-canonicalize,rpeg-eliminate-dead-stages,rpeg-eliminate-reference,rpeg-fuse-inference",
    "rpeg-annotate-parallelism",
    "rpeg-schedule",
)
"""Passes in their order; each is run on what the ones above made."""
WRITTEN = sorted(
    path
    for folder in ("filecheck/dialect", "unit/interp/l1")
    for path in (ROOT / "tests" / folder).glob("*.mlir")
    if "rpeg.step " in path.read_text()
)
ANNOTATE = "rpeg-annotate-parallelism{dp=2 tp=2 sp=true}"


def graph(name: str) -> Graph:
    loaded = load(STEM[name].read_text(), name)
    assert isinstance(loaded.module, ModuleOp)
    return graphs(loaded.module, loaded.sources)[0]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["dapo", "async_grpo_alps64"])
def test_golden(name: str, target: str, update_golden: bool) -> None:
    run = opt(str(STEM[name]), "-t", f"rpeg-{target}")
    assert (run.code, run.err) == (0, "")
    path = GOLDEN / f"{name}.{target}"
    if update_golden:
        path.write_text(run.out)
    assert run.out == path.read_text()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_edge_joins_two_nodes_that_are_drawn(path: Path) -> None:
    loaded = load(path.read_text(), str(path))
    assert loaded.module is not None
    for drawn in graphs(loaded.module, loaded.sources):
        ids = [node.id for node in drawn.nodes]
        assert len(ids) == len(set(ids))
        ends = {end for edge in drawn.edges for end in (edge.source, edge.target)}
        assert ends <= set(ids)
        loose = {n.id for n in drawn.nodes if n.kind not in ("region", "operation")} - ends
        assert loose == set()
        assert {n.inside for n in drawn.nodes} <= {None, *(n.id for n in drawn.nodes)}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_drawings_are_well_formed(path: Path) -> None:
    text = opt(str(path), "-t", "rpeg-dot").out
    for line in text.splitlines():
        assert re.fullmatch(r'\s*(("[^"]*"|[\w ,=\->\[\]{}.]*|\[[^\]]*\])+[;{]?|})', line), line
    assert text.count("{") == text.count("}")
    chart = opt(str(path), "-t", "rpeg-mermaid").out
    drawn = set(re.findall(r"^ +(?:subgraph )?(n\d+)(?=[\[({])", chart, re.M))
    used = {n for pair in re.findall(r"^  (n\d+) .* (n\d+)$", chart, re.M) for n in pair}
    assert used <= drawn
    opened = len(re.findall(r"^ +subgraph ", chart, re.M))
    assert opened == len(re.findall(r"^ +end$", chart, re.M))


def test_what_the_next_step_reads_is_dashed() -> None:
    drawn = graph("grpo_countdown")
    crossing = {(e.source, e.target, e.value) for e in drawn.edges if e.crosses}
    assert crossing == {("update_actor", "actor", "actor@i+1"), ("q", "train", "train")}
    assert '"update_actor" -> "actor" [label="actor@i+1", style=dashed];' in dot([drawn])


def test_values_cross_regions() -> None:
    edges = {(e.source, e.target, e.value) for e in graph("dapo").edges}
    assert ("keep", "late", "y") in edges
    assert ("update_actor", "aime", "actor@i+1") in edges


def test_a_window_of_versions_is_named() -> None:
    edges = {(e.source, e.target, e.value) for e in graph("async_grpo_alps64").edges}
    assert any(source == "actor" and "@[i-" in value for source, _, value in edges)


def test_labels_are_escaped() -> None:
    name = 'a"b\\c<d>'
    things = (Node(name, "model", name), Node("end", "operation", "end"))
    odd = Graph(name, "i", 3, things, (Edge(name, "end", name),))
    assert 'digraph "a\\"b\\\\c<d>" {' in dot([odd])
    chart = mermaid([odd])
    assert 'n0(["a#34;b#92;c#60;d#62;"])' in chart
    assert name not in chart


def test_published_weights_are_a_state_of_their_own() -> None:
    text = opt(str(STEM["grpo_countdown"]), "-p", ANNOTATE, "-t", "rpeg-dot").out
    assert '"actor_published" -> "y" [label="actor@i"];' in text
    assert '"publish" -> "actor_published" [label="actor@i+1", style=dashed];' in text


def test_stages_say_where_they_run() -> None:
    text = opt(str(STEM["grpo_countdown"]), "-p", ANNOTATE, "-t", "rpeg-summary").out
    assert re.search(r"^  lp_ref +logprob +all +dp=2 tp=2 sp$", text, re.M)
    record = json.loads(opt(str(STEM["grpo_countdown"]), "-p", ANNOTATE, "-t", "rpeg-json").out)
    (y,) = [o for o in record["pipelines"][0]["operations"] if o["id"] == "y"]
    assert (y["pool"], y["runs"]["par"]["tp"]) == ("all", 2)


def test_bytes() -> None:
    record = json.loads(opt(str(STEM["grpo_countdown"]), "-t", "rpeg-json").out)
    results = {
        r["name"]: (r["bytes_at_most"], r["bytes_expected"])
        for operation in record["pipelines"][0]["operations"]
        for r in operation["results"]
    }
    responses, longest, mean = 64 * 8, 64, 40
    assert results["y"] == (5 * responses * longest, 5 * responses * mean)
    assert results["lp_ref"] == (4 * responses * longest, 4 * responses * mean)
    assert results["adv"] == (4 * responses, 4 * responses)
    assert results["q"] == (None, None)
    assert shown_bytes(5 * responses * longest) == "160.0 KiB"
    assert [shown_bytes(n) for n in (None, 7, 1 << 50)] == ["-", "7 B", "1024.0 TiB"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_view_of_every_level(path: Path) -> None:
    """Of L0, and where the passes take the example, of L1 and L2."""
    loaded = load(path.read_text(), str(path))
    assert isinstance(loaded.module, ModuleOp)
    _all_views(loaded.module, loaded.sources)
    for passes in LOWERED:
        try:
            for one in parse_passes(passes):
                apply(one, Context(), loaded.module, loaded.sources)
        except DiagnosticsError:
            return
        _all_views(loaded.module, loaded.sources)


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.stem)
def test_every_view_of_what_no_pass_makes(path: Path) -> None:
    """Buffers, streams, joins, transfers, reshards."""
    module, sources, problems = parse_module(path.read_text(), str(path))
    assert module is not None, problems
    _all_views(module, sources)


def _all_views(module: ModuleOp, sources: Sources) -> None:
    """Each can be written, with each operation in it; the surface may be refused, at a place."""
    for view in ("dot", "mermaid", "json", "summary"):
        assert WRITERS[f"rpeg-{view}"](module, sources)
    for pipeline in (op for op in module.ops if isinstance(op, PipelineOp)):
        builder = GraphBuilder(pipeline)
        drawn = builder.graph()
        ids = [node.id for node in drawn.nodes]
        assert len(ids) == len(set(ids))
        assert {*builder.ids.values()} <= {*ids}
        assert {end for edge in drawn.edges for end in (edge.source, edge.target)} <= {*ids}
    try:
        WRITERS["rpeg"](module, sources)
    except DiagnosticsError as refusal:
        assert all(problem.at.line > 1 for problem in refusal.diagnostics)


def test_fused_values_are_told_once() -> None:
    passes = "rpeg-annotate-parallelism,rpeg-fuse-inference"
    text = opt(str(STEM["ppo_critic"]), "-p", passes, "-t", "rpeg-summary").out
    assert re.findall(r"^  (lp_old\w*) +per-token", text, re.M) == ["lp_old"]
    drawn = opt(str(STEM["ppo_critic"]), "-p", passes, "-t", "rpeg-dot").out
    assert '  subgraph "cluster_fuse" {\n    label="fuse";\n    "lp_old" [' in drawn
    assert '"lp_old" -> "rt" [label="lp_old"];' in drawn


def test_a_buffer_has_no_surface() -> None:
    run = opt(str(ROOT / "tests" / "filecheck" / "dialect" / "buffers.mlir"), "-t", "rpeg")
    assert "is a buffer, which .rpeg does not have: write MLIR (-t mlir)" in run.err


@pytest.mark.parametrize("target", TARGETS)
def test_programs_have_no_graph(target: str) -> None:
    passes = "rpeg-annotate-parallelism,rpeg-schedule,rpeg-lower-to-programs"
    run = opt(str(STEM["sft_warmup"]) + ":sft_warmup", "-p", passes, "-t", f"rpeg-{target}")
    assert (run.code, run.out) == (1, "")
    assert "rrt.program has no graph of a step: take the module before" in run.err
