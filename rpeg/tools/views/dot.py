"""The graph of a step for Graphviz."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rpeg.tools.views.graph import Edge, Graph, Kind, Node

SHAPES: Mapping[Kind, str] = {
    "model": "shape=box, style=rounded",
    "data": "shape=cylinder",
    "verifier": "shape=hexagon",
    "tool": "shape=component",
    "state": "shape=ellipse",
    "operation": "shape=box",
}


def dot(graphs: Sequence[Graph]) -> str:
    """One digraph per pipeline. Edges to the next step are dashed, regions are clusters."""
    return "".join(f"{line}\n" for graph in graphs for line in _graph(graph))


def _graph(graph: Graph) -> Iterator[str]:
    yield f"digraph {_quoted(graph.name)} {{"
    yield f"  label={_quoted(f'{graph.name}: {graph.index} < {graph.steps}')};"
    yield '  node [fontname="Helvetica"];'
    yield '  edge [fontname="Helvetica", fontsize=10];'
    for node in graph.within(None):
        yield from _node(graph, node, "  ")
    yield from (_edge(edge) for edge in graph.edges)
    yield "}"


def _node(graph: Graph, node: Node, pad: str) -> Iterator[str]:
    if node.kind != "region":
        yield f"{pad}{_quoted(node.id)} [{SHAPES[node.kind]}, label={_quoted(node.label)}];"
        return
    yield f"{pad}subgraph {_quoted(f'cluster_{node.id}')} {{"
    yield f"{pad}  label={_quoted(node.label)};"
    for inner in graph.within(node.id):
        yield from _node(graph, inner, pad + "  ")
    yield f"{pad}}}"


def _edge(edge: Edge) -> str:
    style = ", style=dashed" if edge.crosses else ""
    ends = f"{_quoted(edge.source)} -> {_quoted(edge.target)}"
    return f"  {ends} [label={_quoted(edge.value)}{style}];"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
