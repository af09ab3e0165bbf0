"""From L0 back to the syntax tree: one statement per operation, params resolved, defaults left out.

The tree parses to the same module: what a text of `.rpeg` cannot say is an error at its operation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from rpeg.frontend import ast, written
from rpeg.frontend.lift_names import Names, state_of
from rpeg.frontend.parse import VERSION
from rpeg.ir.base import RpegOp
from rpeg.ir.ops.allow import AllowOp
from rpeg.ir.ops.declare import DeclareOp, ExpectOp, PipelineOp
from rpeg.ir.ops.plan import PlaceOp, PlanOp, PoolOp
from rpeg.ir.ops.regions import CollectOp, EveryOp, KeepOp, YieldOp, terminator_of
from rpeg.ir.ops.sampling import GetOp, StaleOp
from rpeg.ir.ops.step import StepOp
from rpeg.ir.text.diagnostics import Diagnostic, DiagnosticsError
from rpeg.ir.text.sources import Sources
from rpeg.ir.types.buffer import BufferType
from rpeg.ir.types.values import CursorType
from rpeg.ir.vocabulary.records import ALLOW, CLAUSES, EXPECT, POOLS
from rpeg.ir.vocabulary.settings import TEXT, OrState

State = tuple[str, str]
_NO_BUFFERS = "is a buffer, which .rpeg does not have: write MLIR (-t mlir)"


def lift(module: ModuleOp, sources: Sources) -> ast.File:
    """The tree of a verified module.

    Raises:
        DiagnosticsError: operations that have no surface, all of them.
    """
    problems: list[Diagnostic] = []
    pipelines: list[ast.Pipeline] = []
    for op in module.ops:
        if isinstance(op, PipelineOp):
            pipelines += _Lifter(op, sources, problems).pipeline()
        else:
            problems.append(_surfaceless(op, sources))
    if problems:
        raise DiagnosticsError(problems)
    return ast.File(VERSION, tuple(pipelines))


def _surfaceless(op: Operation, sources: Sources) -> Diagnostic:
    return sources.message(op, f"{op.name} has no form in .rpeg: write MLIR (-t mlir)")


class _Lifter:
    """Lifts one pipeline."""

    def __init__(self, op: PipelineOp, sources: Sources, problems: list[Diagnostic]) -> None:
        self.op = op
        self.sources = sources
        self.problems = problems
        self.names = Names(op)
        self.newest: dict[State, SSAValue] = {}
        """The newest version of each state, where the lifter stands."""

    # ---- the parts of a pipeline

    def pipeline(self) -> Iterator[ast.Pipeline]:
        """The pipeline; none where it has no step, as after lowering."""
        parts = [part for op in self.op.body.block.ops for part in self._part(op)]
        declarations = tuple(p for p in parts if isinstance(p, ast.Param | ast.Symbol | ast.Allow))
        expects = tuple(p for p in parts if isinstance(p, ast.Expect))
        plans = tuple(p for p in parts if isinstance(p, ast.Plan))
        for step in (p for p in parts if isinstance(p, ast.Step)):
            yield ast.Pipeline(self.op.title, declarations, step, expects, plans)

    def _part(self, op: Operation) -> Iterator[ast.Node]:
        match op:
            case DeclareOp():
                yield _symbol(op)
            case AllowOp():
                yield ast.Allow(written.record(op.permission, ALLOW[op.permission.kind]))
            case StepOp():
                yield self._step(op)
            case ExpectOp():
                yield self._expect(op)
            case PlanOp():
                yield _plan(op)
            case _:
                self.problems.append(_surfaceless(op, self.sources))

    def _expect(self, op: ExpectOp) -> ast.Expect:
        held = op.distribution
        name = self.names.renamed.get(op.target.data, op.target.data)
        return ast.Expect(name, written.record(held, EXPECT[held.kind]))

    def _step(self, op: StepOp) -> ast.Step:
        self.newest = {key: arg for arg in op.states if (key := state_of(arg)) is not None}
        body = self._body(op.body.block)
        self.problems += (
            self.sources.message(op, f"`{held.title}` {_NO_BUFFERS}")
            for held in op.body.block.arg_types
            if isinstance(held, BufferType)
        )
        self._ends_with_newest(op.ending, list(op.states))
        count = ast.Literal("int", str(op.steps))
        return ast.Step(op.index.data, count, tuple(body))

    # ---- statements

    def _body(self, block: Block) -> list[ast.Statement]:
        statements: list[ast.Statement] = []
        for op in block.ops:
            if isinstance(op, YieldOp | GetOp | StaleOp):
                continue
            if isinstance(op, RpegOp) and op.SURFACE:
                statements.append(self._statement(op))
            else:
                self.problems.append(_surfaceless(op, self.sources))
        around = block.parent_op()
        if not statements and around is not None:
            text = "a block without a statement has no form in .rpeg"
            self.problems.append(self.sources.message(around, text))
        return statements

    def _statement(self, op: RpegOp) -> ast.Statement:
        body = self._region(op) if isinstance(op, EveryOp | CollectOp) else None
        targets = tuple(self.names.ref(r) for r in _results(op))
        self._advance(op)
        return ast.Statement(targets, ast.Call(op.SURFACE, tuple(self._arguments(op))), body)

    def _arguments(self, op: RpegOp) -> Iterator[ast.Arg]:
        table = op.setting_table()
        states: dict[str, ast.Value] = {}
        for name, operand, flow in op.flows():
            spec = table.get(name.removesuffix("_state"))
            if not flow.hidden:
                if not isinstance(op, KeepOp) or not isinstance(operand.type, CursorType):
                    yield ast.Arg(None, self.names.ref(operand))
            elif spec is not None and isinstance(spec.kind, OrState):
                states[spec.name] = self.names.ref(operand)
        given = dict(written.settings(table, op.properties)) | states
        yield from (ast.Arg(name, given[name]) for name in table if name in given)

    # ---- regions and versions

    def _region(self, op: EveryOp | CollectOp) -> tuple[ast.Statement, ...]:
        before = dict(self.newest)
        for argument in op.body.block.args:
            key = state_of(argument)
            if key is not None:
                self.newest[key] = argument
        body = self._body(op.body.block)
        ending = terminator_of(op)
        if isinstance(ending, YieldOp):
            self._ends_with_newest(ending, list(op.carried))
        self.newest = before
        self._carries_newest(op)
        return tuple(body)

    def _ends_with_newest(self, ending: YieldOp, states: Sequence[SSAValue]) -> None:
        """A text always goes on with the newest version of a state."""
        if self.problems:  # an operation without a surface may have made the newest
            return
        for start, end in zip(states, ending.operands, strict=True):
            key = state_of(start)
            if key is not None and self.newest.get(key) is not end:
                text = f"`{key[1]}` continues with a version that is not its newest"
                self.problems.append(self.sources.message(ending, f"{text}: .rpeg can't say that"))

    def _carries_newest(self, op: EveryOp | CollectOp) -> None:
        for value in op.carried:
            key = state_of(value)
            if key is not None and self.newest.get(key) is not value:
                text = f"`{key[1]}` is carried from a version that is not its newest"
                self.problems.append(self.sources.message(op, f"{text}: .rpeg can't say that"))

    def _advance(self, op: RpegOp) -> None:
        for result in op.results:
            key = state_of(result)
            if key is not None:
                self.newest[key] = result


def _results(op: RpegOp) -> Sequence[SSAValue]:
    """The results that a statement names."""
    match op:
        case EveryOp():
            return ()
        case CollectOp():
            ending = terminator_of(op)
            assert isinstance(ending, KeepOp)
            return op.results[: len(ending.kept)]
        case _:
            return op.results[: len(op.signature().results)]


def _symbol(op: DeclareOp) -> ast.Symbol:
    signature = op.signatures()[op.form_name]
    things: list[ast.Value] = []
    if op.initial is not None:
        things.append(ast.Ref(op.initial, ast.Index(offset=ast.Literal("int", "0"))))
    elif op.source is not None:
        things.append(written.value(op.source, TEXT))
    args = [ast.Arg(None, thing) for thing in things]
    args += [ast.Arg(n, v) for n, v in written.settings(signature.settings, op.settings())]
    match op.KIND:
        case "model" | "data" | "verifier" | "tool" | "state" as kind:
            return ast.Symbol(kind, op.title, ast.Call(op.form_name, tuple(args)))
        case kind:
            raise AssertionError(f"no declaration of kind {kind}")


def _plan(op: PlanOp) -> ast.Plan:
    return ast.Plan(
        op.title,
        op.cluster.data,
        tuple(_pool(pool) for pool in op.pools),
        tuple(_place(place) for place in op.places),
    )


def _pool(op: PoolOp) -> ast.Pool:
    return ast.Pool(op.title, written.record(op.shape, POOLS[op.shape.kind]))


def _place(op: PlaceOp) -> ast.Place:
    clauses = tuple(written.record(clause, CLAUSES[clause.kind]) for clause in op.clauses)
    return ast.Place(op.title, op.pool_name, clauses)
