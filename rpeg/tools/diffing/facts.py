"""From a module to its facts.

Defaults are filled in, and what has no meaning is left out: the order of settings, of the summands
of a loss, of lines that do not depend on each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from rpeg.frontend import ast
from rpeg.ir.base import RpegOp
from rpeg.ir.ops.allow import AllowOp
from rpeg.ir.ops.declare import DeclareOp, ExpectOp, PipelineOp
from rpeg.ir.ops.movement import CLAUSES, PublishOp, RanksOp, clause_of, pool_of
from rpeg.ir.ops.plan import PlanOp
from rpeg.ir.ops.regions import CollectOp, EveryOp
from rpeg.ir.ops.sampling import GetOp
from rpeg.ir.ops.step import state_key
from rpeg.ir.ops.updates import UpdateOp
from rpeg.ir.rrt.program import ProgramOp
from rpeg.ir.rsched import EdgeOp, SequenceOp
from rpeg.ir.text.naming import version
from rpeg.ir.types.buffer import BufferType
from rpeg.ir.types.flow import symbol_text
from rpeg.ir.types.values import CursorType, OptimizerType, StateType, WeightsType
from rpeg.ir.vocabulary.settings import python_value
from rpeg.tools.diffing.calls import program
from rpeg.tools.diffing.items import ABOUT, Facts, Item, Ref, Section, shown
from rpeg.tools.views.graph import GraphBuilder, made_by


def facts(module: ModuleOp, params: ast.File | None = None) -> Facts:
    """What a verified module says; with the tree of its text, the params too."""
    declared = {p.name: p.params for p in params.pipelines} if params is not None else {}
    sections: list[Section] = []
    for op in module.ops:
        match op:
            case PipelineOp():
                found = (*map(_param, declared.get(op.title, ())), *_pipeline(op))
                sections.append(Section("pipeline", op.title, found))
            case ProgramOp():
                sections.append(Section("program", op.title, tuple(program(op))))
            case _:
                sections.append(Section("operation", op.name, (Item("text", "", {"is": str(op)}),)))
    return Facts(level(module), tuple(sections))


def level(module: ModuleOp) -> str:
    """How far down a module is: that of its lowest operation."""
    kinds = (("L3", ProgramOp), ("L2", SequenceOp), ("L1", RanksOp))
    found = (name for name, kind in kinds if any(isinstance(op, kind) for op in module.walk()))
    return next(found, "L0")


def _param(param: ast.Param) -> Item:
    return Item("param", param.name, {"value": str(param.value)}, text=str(param.value))


def _pipeline(op: PipelineOp) -> Iterator[Item]:
    builder = GraphBuilder(op)
    yield Item("step", "", {"steps": builder.step.steps})
    for part in op.body.block.ops:
        yield from _part(part)
    yield from StepItems(builder).items()


def _part(op: Operation) -> Iterator[Item]:
    match op:
        case DeclareOp():
            yield _declaration(op)
        case AllowOp():
            held = python_value(op.permission)
            yield Item("allow", op.permission.kind, {"is": held}, text=shown(held))
        case ExpectOp():
            held = python_value(op.distribution)
            fields = {ABOUT: Ref(op.target.data), "is": held}
            yield Item("expect", op.target.data, fields, text=shown(held))
        case PlanOp():
            yield from _plan(op)
        case RanksOp():
            ranks = f"{op.ranks.start}..{op.ranks.stop - 1}"
            yield Item("group", op.title, {"ranks": ranks}, text=f"ranks {ranks}")
        case SequenceOp():
            yield _sequence(op)
        case _:
            pass


def _declaration(op: DeclareOp) -> Item:
    source = op.uri if op.initial is None else Ref(op.initial, "@0")
    settings = {name: python_value(held) for name, held in op.settings().items()}
    table = op.form_settings(op.form_name)
    given = [n for n in settings if n not in table or op.settings()[n] != table[n].default]
    first = {"source": source} if source is not None else {}
    words = [*map(shown, first.values()), *(f"{n}={shown(settings[n])}" for n in given)]
    fields = {"form": op.form_name, **first, **settings}
    return Item(op.KIND, op.title, fields, (op.title,), f"{op.form_name}({', '.join(words)})")


def _plan(op: PlanOp) -> Iterator[Item]:
    where = f"of plan {op.title}"
    yield Item("plan", op.title, {"cluster": op.cluster.data}, text=f"on {op.cluster.data}")
    for pool in op.pools:
        shape = python_value(pool.shape)
        yield Item("pool", f"{pool.title} {where}", {"shape": shape}, text=shown(shape))
    for place in op.places:
        clauses = {c.kind: python_value(c) for c in place.clauses}
        text = ", ".join((place.pool_name, *map(shown, clauses.values())))
        fields = {ABOUT: Ref(place.title), "pool": place.pool_name, **clauses}
        yield Item("stage", f"{place.title} {where}", fields, text=f"on {text}")


def _sequence(op: SequenceOp) -> Item:
    edges = (e for e in op.body.block.ops if isinstance(e, EdgeOp))
    across = frozenset(
        f"{e.source.data} to {e.target.data} distance {e.distance.value.data}" for e in edges
    )
    fields = {"order": tuple(op.labels), "edges": across}
    return Item("sequence", symbol_text(op.pool), fields, text=" ".join(op.labels))


class StepItems:
    """The statements of a step, and the versions that the next step goes on with."""

    def __init__(self, builder: GraphBuilder) -> None:
        self.builder = builder
        self.inside = {node.id: node.inside for node in builder.graph().nodes}

    def items(self) -> Iterator[Item]:
        """The statements by their names; their order follows from what they read."""
        yield from (self._statement(op, name) for op, name in self.builder.ids.items())
        ends = self.builder.step.ending.operands
        for start, end in zip(self.builder.step.states, ends, strict=True):
            if start in self.builder.states:
                yield self._next(self.builder.states[start], self._ref(end))

    def _next(self, name: str, goes_on: Ref) -> Item:
        """A state beside the declared ones has a name that is only a handle."""
        if name in self.builder.declared:
            return Item("next", name, {ABOUT: Ref(name), "is": goes_on}, text=str(goes_on))
        return Item("next", name, {"is": goes_on}, (name,), str(goes_on))

    def _statement(self, op: Operation, name: str) -> Item:
        assert isinstance(op, RpegOp)
        reads, table = self._reads(op), op.setting_table()
        settings = {n: op.properties.get(n, table[n].default) for n in table}
        plain = {n: python_value(held) for n, held in settings.items() if held is not None}
        given = [f"{n}={shown(v)}" for n, v in plain.items() if settings[n] != table[n].default]
        words = ", ".join([*(shown_reads(value) for value in reads.values()), *given])
        around = self.inside[name]
        where = {"inside": Ref(around)} if around is not None else {}
        fields = {"operation": op.word, **where, **reads, **plain, **_runs(op)}
        return Item("statement", name, fields, self._results(op, name), f"{op.word}({words})")

    def _results(self, op: RpegOp, name: str) -> tuple[str, ...]:
        named = (r for r in made_by(op) if state_key(r.type) is None)
        return (name, *(self.builder.value(r) for r in named))

    def _reads(self, op: RpegOp) -> dict[str, object]:
        if isinstance(op, EveryOp | CollectOp):
            return {}
        found: dict[str, list[Ref]] = {}
        for name, value, _ in op.flows():
            if not isinstance(value.type, OptimizerType):
                found.setdefault(name, []).append(self._ref(value))
        return {name: _read(op, name, refs) for name, refs in found.items()}

    def _ref(self, value: SSAValue) -> Ref:
        match value.type:
            case WeightsType() as held:
                return self._weights(value, held)
            case CursorType() | StateType() | BufferType():
                made = self.builder.maker(value)
                name = self.builder.value(value).partition("@")[0]
                return Ref(made, prefix="" if made == name else f"{name} after ")
            case _:
                return Ref(self.builder.value(value))

    def _weights(self, value: SSAValue, held: WeightsType) -> Ref:
        """By the model's name, or that of the register for published weights."""
        if isinstance(value.owner, GetOp):
            return Ref(held.owner)
        made = self.builder.maker(value)
        published = isinstance(value.owner, Block | PublishOp)
        return Ref(made if published else held.owner, version(held, "i"))


def _read(op: RpegOp, name: str, refs: Sequence[Ref]) -> object:
    """One value, several in their order, or the summands of a loss, which have none."""
    if isinstance(op, UpdateOp) and name == "losses":
        return frozenset(refs)
    return refs[0] if isinstance(getattr(op, name), SSAValue) else tuple(refs)


def shown_reads(value: object) -> str:
    """What a statement reads, as its text has it."""
    match value:
        case frozenset():
            return ", ".join(sorted(map(str, value)))
        case tuple():
            return ", ".join(map(str, value))
        case _:
            return str(value)


def _runs(op: RpegOp) -> dict[str, object]:
    """Where a stage runs and how, after parallelism is annotated."""
    pool = pool_of(op)
    clauses = ((kind, clause_of(op, kind)) for kind in CLAUSES)
    held = {kind: python_value(clause) for kind, clause in clauses if clause is not None}
    return {**({"pool": pool} if pool is not None else {}), **held}
