"""The graph of a step, with the seconds of its stages."""

from __future__ import annotations

from collections.abc import Mapping
from xml.etree.ElementTree import Element

from xdsl.ir import Operation

from rpeg.ir.base import RpegOp
from rpeg.ir.ops.declare import PipelineOp
from rpeg.ir.rsched import label_of
from rpeg.ir.stages import stage_name
from rpeg.tools.report.colours import stage_colours
from rpeg.tools.report.figures import Figure
from rpeg.tools.report.layers import Arrangement, Pair, Sizes, arrange
from rpeg.tools.report.markup import drawing, fill, hint, short, tag
from rpeg.tools.report.quantities import seconds
from rpeg.tools.views.graph import Edge, Graph, GraphBuilder, Node

WIDE, HIGH, BELOW = 132.0, 40.0, 34.0
"""A node's width and height, and the space to the next layer."""
SIZES = Sizes(node=WIDE, bend=8.0, gap=12.0, widest=5)


def draw_graph(section: Element, estimate: Figure, pipeline: PipelineOp) -> None:
    """Draws what the step of a pipeline reads, does and hands on."""
    builder = GraphBuilder(pipeline)
    stages = {node: _stage(op) for op, node in builder.ids.items()}
    _Drawing(estimate, _Picture(builder.graph()), stages).onto(section)
    text = "Dashed: what the next step starts from. Framed: on the critical cycle."
    tag(section, "p", text, class_="caption")


def _stage(op: Operation) -> str | None:
    """What an estimate calls an operation: a stage by its name, what moves by its task's label."""
    return stage_name(op) if isinstance(op, RpegOp) and op.PLACED else label_of(op)


class _Picture:
    """The graph without a way back: what the next step reads is a node of its own at the end."""

    def __init__(self, graph: Graph) -> None:
        kinds = {node.id: node.kind for node in graph.nodes}
        self.name = graph.name
        self.around = {n.id: n.label for n in graph.nodes if n.kind == "region"}
        self.nodes = {node.id: node for node in graph.nodes if node.kind != "region"}
        self.after: set[str] = set()
        values: dict[Pair, list[str]] = {}
        for edge in graph.edges:
            if not edge.crosses:
                values.setdefault((edge.source, edge.target), []).append(edge.value)
            elif kinds[edge.target] != "data":  # where a batch ends is not worth a node
                values[edge.source, self._next(edge)] = [edge.value]
        self.values = values

    def _next(self, edge: Edge) -> str:
        name = f"{edge.value}, next step"
        self.nodes[name] = Node(name, "state", edge.value)
        self.after.add(name)
        return name


class _Drawing:
    def __init__(
        self, estimate: Figure, picture: _Picture, stages: Mapping[str, str | None]
    ) -> None:
        self.picture, self.stages = picture, stages
        self.colours = stage_colours(estimate)
        self.figures = {figure["stage"].text: figure for figure in estimate["stages"]}
        self.critical = critical_stages(estimate)
        self.placed = arrange([*picture.nodes], [*picture.values], SIZES)

    def onto(self, section: Element) -> None:
        height = self.placed.layers * (HIGH + BELOW) - BELOW + 2
        label = f"graph of a step of {self.picture.name}"
        svg = drawing(section, self.placed.width + 2, height, label)
        inner = tag(svg, "g", transform="translate(1 1)")
        for edge, values in self.picture.values.items():
            self._edge(inner, edge, ", ".join(values))
        for node in self.picture.nodes.values():
            self._node(inner, node)

    def _edge(self, svg: Element, edge: Pair, values: str) -> None:
        kind = "edge next" if edge[1] in self.picture.after else "edge"
        line = tag(svg, "path", d=_curve(self.placed, edge), class_=kind)
        hint(line, f"{edge[0]} → {edge[1]}: {values}")

    def _node(self, svg: Element, node: Node) -> None:
        left = self.placed.x[node.id] - WIDE / 2
        top = self.placed.layer[node.id] * (HIGH + BELOW)
        stage = self.stages.get(node.id)
        group = tag(svg, "g", transform=f"translate({left:.1f} {top:.1f})")
        box = tag(group, "rect", width=WIDE, height=HIGH, rx=_corner(node))
        box.set("class", self._classes(node, stage))
        hint(box, self._told(node))
        name = node.id if node.kind == "operation" else node.label
        tag(group, "text", short(name, WIDE - 8), x=WIDE / 2, y=17, class_="name middle")
        under = tag(group, "text", x=WIDE / 2, y=32, class_="small middle")
        if stage in self.figures:
            fill(under, self.figures[stage]["seconds"], seconds)
        else:
            under.text = short(self._kind(node), WIDE - 8)

    def _classes(self, node: Node, stage: str | None) -> str:
        words = ["node", "next" if node.id in self.picture.after else node.kind]
        if stage in self.colours:
            words += ["stage", self.colours[stage]]
        if stage in self.critical:
            words.append("critical")
        return " ".join(words)

    def _told(self, node: Node) -> str:
        region = self._region(node)
        return f"{node.id}: {node.label}" + (f", inside {region}" if region else "")

    def _kind(self, node: Node) -> str:
        """What stands under the name of a node that takes no time."""
        if node.id in self.picture.after:
            return "next step"
        if node.kind != "operation":
            return node.kind
        return node.label if node.label != node.id else self._region(node)

    def _region(self, node: Node) -> str:
        return self.picture.around[node.inside] if node.inside is not None else ""


def critical_stages(estimate: Figure) -> set[str]:
    """Stages with a task on the critical cycle."""
    cycle = set(estimate["critical_cycle"].value)
    return {t["stage"] for t in estimate["tasks"].value if t["task"] in cycle and t["stage"]}


def _corner(node: Node) -> float:
    return 3.0 if node.kind == "operation" else HIGH / 2


def _curve(placed: Arrangement, edge: Pair) -> str:
    """From below the source, straight down through the bends, to the top of the target."""
    points = placed.ways[edge]
    x, layer = points[0]
    y = layer * (HIGH + BELOW) + HIGH
    parts = [f"M{x:.1f},{y:.1f}"]
    for x_next, layer in points[1:]:
        top = layer * (HIGH + BELOW)
        middle = (y + top) / 2
        parts.append(f"C{x:.1f},{middle:.1f} {x_next:.1f},{middle:.1f} {x_next:.1f},{top:.1f}")
        x, y = x_next, top
        if (x_next, layer) != points[-1]:
            y = top + HIGH
            parts.append(f"V{y:.1f}")
    return "".join(parts)
