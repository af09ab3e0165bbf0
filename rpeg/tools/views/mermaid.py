"""The graph of a step as a Mermaid flowchart, which Markdown pages draw."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rpeg.tools.views.graph import Edge, Graph, Kind, Node

SHAPES: Mapping[Kind, tuple[str, str]] = {
    "model": ("([", "])"),
    "data": ("[(", ")]"),
    "verifier": ("{{", "}}"),
    "tool": ("[[", "]]"),
    "state": ("((", "))"),
    "operation": ("[", "]"),
}
ENTITIES = {ord(c): f"#{ord(c)};" for c in '#"&<>`\\\n'}
"""Characters that mean something in a label, as Mermaid writes them instead."""


def mermaid(graphs: Sequence[Graph]) -> str:
    """One flowchart, a subgraph for each pipeline and each region; the next step's edges dashed."""
    return "".join(f"{line}\n" for line in ["flowchart TB", *_Flowchart(graphs).lines()])


class _Flowchart:
    """Nodes are numbered: their own names could be words of Mermaid."""

    def __init__(self, graphs: Sequence[Graph]) -> None:
        self.graphs = graphs
        pairs = ((k, node.id) for k, graph in enumerate(graphs) for node in graph.nodes)
        self.ids = {pair: f"n{number}" for number, pair in enumerate(pairs)}

    def lines(self) -> Iterator[str]:
        for number, graph in enumerate(self.graphs):
            title = f"{graph.name}: {graph.index} < {graph.steps}"
            yield f"  subgraph p{number}[{_quoted(title)}]"
            for node in graph.within(None):
                yield from self._node(number, node, "    ")
            yield "  end"
            yield from (self._edge(number, edge) for edge in graph.edges)

    def _node(self, number: int, node: Node, pad: str) -> Iterator[str]:
        name = self.ids[number, node.id]
        if node.kind != "region":
            opening, closing = SHAPES[node.kind]
            yield f"{pad}{name}{opening}{_quoted(node.label)}{closing}"
            return
        yield f"{pad}subgraph {name}[{_quoted(node.label)}]"
        for inner in self.graphs[number].within(node.id):
            yield from self._node(number, inner, pad + "  ")
        yield f"{pad}end"

    def _edge(self, number: int, edge: Edge) -> str:
        source, target = self.ids[number, edge.source], self.ids[number, edge.target]
        label = _quoted(edge.value)
        return f"  {source} {f'-. {label} .->' if edge.crosses else f'-- {label} -->'} {target}"


def _quoted(text: str) -> str:
    return f'"{text.translate(ENTITIES)}"'
