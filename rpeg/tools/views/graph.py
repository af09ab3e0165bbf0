"""The graph of a step as nodes and edges: declared things, operations, and the values between.

A version of a state that the next step reads is an edge back to the state, `crosses` set.
Optimizer state is left out: it goes wherever the weights of its model go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from rpeg.frontend.lift_names import Names
from rpeg.ir.base import RpegOp
from rpeg.ir.ops.declare import DeclareOp, PipelineOp
from rpeg.ir.ops.fuse import FuseOp
from rpeg.ir.ops.regions import CollectOp, EveryOp, KeepOp, YieldOp, terminator_of
from rpeg.ir.ops.sampling import GetOp, StaleOp
from rpeg.ir.ops.step import StepOp, state_key
from rpeg.ir.ops.updates import UpdateOp
from rpeg.ir.text.diagnostics import DiagnosticsError
from rpeg.ir.text.sources import Sources
from rpeg.ir.types.values import CursorType, OptimizerType

Kind = Literal["model", "data", "verifier", "tool", "state", "operation", "region"]
REGIONS = EveryOp | CollectOp | FuseOp
"""Operations that are drawn as what is inside of them."""


@dataclass(frozen=True)
class Node:
    """A declared thing, an operation, or an operation with a region (every, collect, fuse)."""

    id: str
    """Unique in its graph."""
    kind: Kind
    label: str
    inside: str | None = None
    """Id of the region around it."""


@dataclass(frozen=True)
class Edge:
    """A value that one node makes and the other reads."""

    source: str
    target: str
    value: str
    """Its name, with the version for weights: `actor@i`."""
    crosses: bool = False
    """The next step reads it."""


@dataclass(frozen=True)
class Graph:
    """One pipeline."""

    name: str
    index: str
    steps: int
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]

    def within(self, region: str | None) -> Iterator[Node]:
        """The nodes right inside a region, or of the step itself, in program order."""
        yield from (node for node in self.nodes if node.inside == region)


def graphs(module: ModuleOp, sources: Sources) -> list[Graph]:
    """The graph of each pipeline. Raises DiagnosticsError for programs, which have no step."""
    found = list(module.ops)
    others = [op for op in found if not isinstance(op, PipelineOp)]
    if others:
        text = "has no graph of a step: take the module before rpeg-lower-to-programs"
        raise DiagnosticsError(sources.message(op, f"{op.name} {text}") for op in others)
    return [GraphBuilder(op).graph() for op in found if isinstance(op, PipelineOp)]


class GraphBuilder:
    """Builds the graph of a pipeline, and knows the names that it gave."""

    def __init__(self, pipeline: PipelineOp) -> None:
        self.pipeline = pipeline
        self.step = pipeline.ops_of(StepOp)[0]
        self.names = Names(pipeline)
        declared = pipeline.ops_of(DeclareOp)
        self.declared: dict[str, Kind] = {op.title: _kind(op) for op in declared}
        self._taken = set(self.declared)
        self.states = {arg: self._state(arg) for arg in self.step.states if _shown(arg)}
        self.ids = {op: self._id(op) for op in self.step.walk() if _is_node(op)}

    def graph(self) -> Graph:
        """The graph, in program order."""
        nodes = (*self._things(), *self._operations(self.step.body.block, None))
        edges = dict.fromkeys((*self._reads(), *self._versions()))
        name, index = self.pipeline.title, self.step.index.data
        return Graph(name, index, self.step.steps, nodes, tuple(edges))

    def maker(self, value: SSAValue) -> str:
        """Id of the node that a value comes from."""
        owner = value.owner
        if isinstance(owner, Block):
            return self._argument(value, owner)
        match owner:
            case GetOp():
                return owner.symbol_name
            case StaleOp():
                return self.maker(owner.weights)
            case EveryOp() | CollectOp():
                return self._leaving(value, owner)
            case FuseOp():
                return self.maker(owner.inner(value))
            case _:
                return self.ids[owner]

    def _leaving(self, value: SSAValue, owner: EveryOp | CollectOp) -> str:
        """What leaves a region: a collect's values come from its keep, which drops groups."""
        ending = terminator_of(owner)
        assert ending is not None
        if isinstance(ending, KeepOp) and not isinstance(value.type, CursorType):
            return self.ids[ending]
        return self.maker(ending.operands[place_of(value, owner.results)])

    def value(self, value: SSAValue) -> str:
        """The name of a value."""
        return str(self.names.ref(value))

    def _argument(self, value: SSAValue, block: Block) -> str:
        known = next((name for arg, name in self.states.items() if arg is value), None)
        if known is not None:
            return known
        around = block.parent_op()
        assert isinstance(around, EveryOp | CollectOp)
        return self.maker(around.carried[place_of(value, block.args)])

    # ---- nodes

    def _things(self) -> Iterator[Node]:
        """Declared things that the step reads; states beside them, such as published weights."""
        read = {op.symbol_name for op in self.step.walk() if isinstance(op, GetOp)}
        shown = {*read, *self.states.values()}
        for name, kind in self.declared.items():
            if name in shown:
                yield Node(name, kind, name)
        for name in self.states.values():
            if name not in self.declared:
                yield Node(name, "state", name)

    def _operations(self, block: Block, inside: str | None) -> Iterator[Node]:
        for op in block.ops:
            if isinstance(op, REGIONS):
                yield Node(self.ids[op], "region", _label(op), inside)
                yield from self._operations(op.body.block, self.ids[op])
            elif op in self.ids:
                yield Node(self.ids[op], "operation", _label(op), inside)

    def _state(self, arg: SSAValue) -> str:
        key = state_key(arg.type)
        assert key is not None
        declared = key[1]
        first = next(a for a in self.step.states if state_key(a.type) == key)
        return declared if arg is first else self._unique(arg.name_hint or f"{declared}_state")

    def _id(self, op: Operation) -> str:
        named = (self.value(r) for r in op.results if state_key(r.type) is None)
        if isinstance(op, UpdateOp):
            return self._unique(f"update_{op.makes()}")
        own = None if isinstance(op, REGIONS) else next(named, None)
        return self._unique(own or word(op))

    def _unique(self, wanted: str) -> str:
        name, number = wanted, 2
        while name in self._taken:
            name, number = f"{wanted}_{number}", number + 1
        self._taken.add(name)
        return name

    # ---- edges

    def _reads(self) -> Iterator[Edge]:
        for op, target in self.ids.items():
            if not isinstance(op, REGIONS):
                read = op.kept if isinstance(op, KeepOp) else op.operands
                shown = (v for v in read if _shown(v))
                yield from (Edge(self.maker(v), target, self.value(v)) for v in shown)

    def _versions(self) -> Iterator[Edge]:
        for start, end in zip(self.step.states, self.step.ending.operands, strict=True):
            if start in self.states and start is not end:
                made, name = self.maker(end), self.value(end)
                yield Edge(made, self.states[start], name, crosses=True)


def place_of(value: SSAValue, values: Iterable[SSAValue]) -> int:
    """Where a value stands among others."""
    return next(k for k, other in enumerate(values) if other is value)


def made_by(op: Operation) -> Sequence[SSAValue]:
    """The values that an operation makes; those of a fused pass are made inside."""
    return () if isinstance(op, FuseOp) else op.results


def _is_node(op: Operation) -> bool:
    return isinstance(op, RpegOp) and not isinstance(op, GetOp | StaleOp | YieldOp)


def _shown(value: SSAValue) -> bool:
    return not isinstance(value.type, OptimizerType)


def _label(op: Operation) -> str:
    match op:
        case EveryOp():
            return f"every {op.int_of('steps')} steps"
        case CollectOp():
            return f"collect {op.int_of('groups')} groups"
        case _:
            return word(op)


def word(op: Operation) -> str:
    """What a reader calls an operation."""
    return op.word.removeprefix("rpeg.") if isinstance(op, RpegOp) else op.name


def _kind(op: DeclareOp) -> Kind:
    match op.KIND:
        case "model" | "data" | "verifier" | "tool" | "state" as kind:
            return kind
        case kind:
            raise AssertionError(f"no declaration of kind {kind}")
