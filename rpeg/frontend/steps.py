"""The step: statements to operations, with states and data cursors threaded through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.builder import Builder
from xdsl.dialects.builtin import StringAttr, SymbolRefAttr
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint

from rpeg.frontend import ast
from rpeg.frontend.declare import lookup, things_first
from rpeg.frontend.names import OWN, Names, Scope, State, first_name, hint, statements
from rpeg.frontend.things import Reader, spread
from rpeg.frontend.values import Given, absent
from rpeg.ir.base import RpegOp
from rpeg.ir.ops.regions import CollectOp, EveryOp, KeepOp, YieldOp
from rpeg.ir.ops.updates import CopyOp, UpdateOp
from rpeg.ir.rules import violations
from rpeg.ir.rules.violations import Anchor
from rpeg.ir.stages import STAGE
from rpeg.ir.text.diagnostics import Position
from rpeg.ir.types.values import CursorType, OptimizerType, WeightsType
from rpeg.ir.vocabulary.signature import Signature
from rpeg.ir.vocabulary.tables import operation_class, operations

NEXT = ("next",)


@dataclass
class Body:
    """A block under construction: the step's, or a region's."""

    builder: Builder
    scope: Scope
    assigned: list[str] = field(default_factory=list[str])
    """States whose next version it makes, in order."""
    read_cursors: list[str] = field(default_factory=list[str])
    """Data sets it takes batches of, in order."""


class StepGen:
    """Builds the step of one pipeline."""

    def __init__(self, names: Names, reader: Reader, states: dict[str, State]) -> None:
        self.names = names
        self.reader = reader
        self.states = states
        self.messages = reader.messages
        self.sources = reader.sources
        self.anchors: dict[Anchor, Position] = {}

    # ---- bodies and statements

    def body(self, nodes: Sequence[ast.Statement], body: Body) -> None:
        """Every statement of a body, in order."""
        self.names.expect_later(nodes)
        for node in nodes:
            self.statement(node, body)

    def statement(self, node: ast.Statement, body: Body) -> None:
        """One statement: one operation."""
        signature = lookup(node.call, operations(), "an operation", self.messages)
        if signature is None:
            self.names.doubt(node)
            for target in node.targets:
                self._bind(target, None, body, None, node)
            return
        if (node.body is None) == signature.region:
            needs = "needs a region { ... }" if signature.region else "has no region"
            self.messages.error(node.call.at, f"{signature.name} {needs}")
        self.anchors = {violations.result(k): t.at for k, t in enumerate(node.targets)}
        op = self._operation(node, signature, body)
        if op is None or (isinstance(op, UpdateOp) and op.makes() not in self.states):
            self.names.doubt(node)
        self._targets(node, signature, op, body)

    def _operation(self, node: ast.Statement, signature: Signature, body: Body) -> RpegOp | None:
        things_first(node.call, signature, self.messages, body.scope)
        missing = absent(node.call, signature)
        operands = self._operands(node.call, signature, missing, body)
        offered = {text.partition("=")[0] for text in self.reader.offered}
        missing = [name for name in missing if name not in offered]
        self.reader.offered.clear()
        anchors = self.anchors
        given = self.reader.settings.read(node.call, signature, missing)
        if node.body is not None and signature.region:
            return self._region(node, signature, given, body)
        if operands is None or not given.sound:
            return None
        operands += self._states_of_settings(signature, given, body)
        return self._emit(node, signature, operands, given, anchors, body)

    def _operands(
        self, call: ast.Call, signature: Signature, missing: list[str], body: Body
    ) -> list[SSAValue] | None:
        pairs = spread(call, signature, self.messages, missing)
        if pairs is None:
            return None
        values: list[SSAValue] = []
        for arg, spec in pairs:
            self.anchors[violations.operand(len(values))] = arg.value.at
            value = self.reader.thing(arg, signature, spec, body.scope, body.builder)
            values.append(value)
            if signature.name == "update" and len(values) == 1:
                values.append(self._optimizer(value, body))
        return values

    def _optimizer(self, weights: SSAValue, body: Body) -> SSAValue:
        owner = weights.type.owner if isinstance(weights.type, WeightsType) else ""
        state = self.states.get(owner)
        if state is None or state.optimizer is None:
            return self.reader.poison(body.builder)
        return state.optimizer

    def _states_of_settings(self, signature: Signature, given: Given, body: Body) -> list[SSAValue]:
        """Values of settings that name a state, such as coef=kl@i: operands without a surface."""
        spec = operations()["kl_controller"].operands[0]
        read = (
            self.reader.reference(ref, signature, spec, body.scope, body.builder)
            for ref in given.states.values()
        )
        return [v if v is not None else self.reader.poison(body.builder) for v in read]

    def _emit(
        self,
        node: ast.Statement,
        signature: Signature,
        operands: list[SSAValue],
        given: Given,
        anchors: dict[Anchor, Position],
        body: Body,
        regions: Sequence[Region] = (),
    ) -> RpegOp:
        cls = operation_class(signature.name)
        settings = dict(given.values)
        cls.complete(operands, settings)
        settings = {name: settings[name] for name in signature.settings if name in settings}
        attributes: dict[str, Attribute] = {}
        if cls is CopyOp and node.targets:
            settings["target"] = SymbolRefAttr(node.targets[0].name)
        if cls.PLACED and cls is not UpdateOp and node.targets:
            attributes[STAGE] = StringAttr(node.targets[0].name)
        at = self.sources.location(node.call.at)
        op = body.builder.insert(cls.make(operands, settings, regions, attributes, at))
        self.sources.record(op, {**anchors, **given.anchors})
        self._hints(op, node)
        self._advance_cursor(op, body)
        return op

    def _hints(self, op: Operation, node: ast.Statement) -> None:
        for result, target in zip(op.results, node.targets, strict=False):
            result.name_hint = target.name
        for result in op.results[len(node.targets) :]:
            if isinstance(result.type, OptimizerType):
                result.name_hint = f"{result.type.owner}_opt"
            if isinstance(result.type, CursorType):
                result.name_hint = result.type.symbol

    def _advance_cursor(self, op: Operation, body: Body) -> None:
        for result in op.results:
            if isinstance(result.type, CursorType):
                self.reader.cursors[result.type.symbol] = result
                body.read_cursors.append(result.type.symbol)

    # ---- regions

    def _region(
        self, node: ast.Statement, signature: Signature, given: Given, body: Body
    ) -> RpegOp | None:
        anchors = self.anchors
        for target in node.targets:
            if target.version is None and target.name not in self.names.symbols:
                self.names.give(target.name, target.at)
        assert node.body is not None
        carried = self._carried(node, signature)
        cursors = dict(self.reader.cursors)
        block = Block(arg_types=[v.type for v in carried] if signature.name == "collect" else [])
        for argument, value in zip(block.args, carried, strict=False):
            argument.name_hint = value.name_hint or None
            assert isinstance(value.type, CursorType)
            self.reader.cursors[value.type.symbol] = argument
        before = {n: (s.after, s.optimizer_after) for n, s in self.states.items()}
        inner = Body(Builder(InsertPoint.at_end(block)), Scope(outer=body.scope))
        self.body(node.body, inner)
        self._end_region(inner, signature)
        for name, (after, optimizer) in before.items():
            self.states[name].after, self.states[name].optimizer_after = after, optimizer
        self.reader.cursors.update(cursors)
        if signature.name == "every":
            carried = self._newest(inner)  # the states as they were: given where it does not fire
        if not given.sound:
            return None
        return self._close(node, signature, carried, given, anchors, body, inner, block)

    def _carried(self, node: ast.Statement, signature: Signature) -> list[SSAValue]:
        """The data cursors that a collect threads through its rounds."""
        if signature.name != "collect":
            return []
        batched = [
            first.name
            for s in statements(node.body or ())
            if s.call.name == "batch" and s.call.things
            for first in [s.call.things[0].value]
            if isinstance(first, ast.Ref) and first.name in self.reader.cursors
        ]
        return [self.reader.cursors[name] for name in dict.fromkeys(batched)]

    def _end_region(self, inner: Body, signature: Signature) -> None:
        last = inner.builder.insertion_point.block.last_op
        if isinstance(last, KeepOp) and signature.name == "collect":
            after = [self.reader.cursors[n] for n in dict.fromkeys(inner.read_cursors)]
            last.operands = [*last.operands, *after]
        elif signature.name == "every":
            inner.builder.insert(YieldOp.make(self._newest(inner)))

    def _newest(self, inner: Body) -> list[SSAValue]:
        """The newest version of each state that a region assigns, hidden states included."""
        versions: list[SSAValue] = []
        for name in inner.assigned:
            state = self.states[name]
            versions.append(state.after or state.start)
            if state.optimizer is not None:
                versions.append(state.optimizer_after or state.optimizer)
        return versions + [self.reader.cursors[n] for n in dict.fromkeys(inner.read_cursors)]

    def _close(
        self,
        node: ast.Statement,
        signature: Signature,
        carried: list[SSAValue],
        given: Given,
        anchors: dict[Anchor, Position],
        body: Body,
        inner: Body,
        block: Block,
    ) -> RpegOp:
        op = self._emit(node, signature, carried, given, anchors, body, [Region(block)])
        if isinstance(op, EveryOp):
            self._after_every(op, body, inner)
        return op

    def _after_every(self, op: EveryOp, body: Body, inner: Body) -> None:
        """Takes over the results, which stand in the order of `_newest`."""
        results = iter(op.results)
        for name in inner.assigned:
            state = self.states[name]
            state.after = next(results)
            state.after.name_hint = name
            if state.optimizer is not None:
                state.optimizer_after = next(results)
                state.optimizer_after.name_hint = f"{name}_opt"
        body.assigned += [n for n in inner.assigned if n not in body.assigned]

    # ---- targets

    def _targets(
        self, node: ast.Statement, signature: Signature, op: RpegOp | None, body: Body
    ) -> None:
        results = self._surface_results(signature, op)
        if results is not None:
            self._count(node, signature, len(results))
        for index, target in enumerate(node.targets):
            value = results[index] if results and index < len(results) else None
            self._bind(target, value, body, signature, node)
        if isinstance(op, UpdateOp) and node.targets:
            state = self.states.get(self._state_of(node.targets[0], node) or "")
            if state is not None:
                state.optimizer_after = op.results[1]

    def _surface_results(
        self, signature: Signature, op: RpegOp | None
    ) -> Sequence[SSAValue] | None:
        """The results that a statement names; None where their number is not known."""
        if isinstance(op, EveryOp):
            return []
        if isinstance(op, CollectOp):
            last = op.body.block.last_op
            return op.results[: len(last.kept)] if isinstance(last, KeepOp) else None
        if op is not None:
            return op.results[: len(signature.results)]
        return (
            None
            if signature.region
            else [self.reader.poison(self.reader.top)] * len(signature.results)
        )

    def _count(self, node: ast.Statement, signature: Signature, count: int) -> None:
        if len(node.targets) == count:
            return
        at = node.targets[0].at if node.targets else node.at
        self.reader.short = self.reader.short or len(node.targets) < count
        if not count:
            self.messages.error(at, f"{signature.name} gives no result: write it without a name")
            return
        plural = "s" if count != 1 else ""
        nouns = f" ({', '.join(signature.results)})" if signature.results else ""
        self.messages.error(
            at,
            f"{signature.name} gives {count} result{plural}{nouns}: write {count} name{plural} "
            "before `=`",
        )

    def _bind(
        self,
        target: ast.Ref,
        value: SSAValue | None,
        body: Body,
        signature: Signature | None,
        node: ast.Statement,
    ) -> None:
        if target.version is None:
            self._bind_plain(target, value, body, signature)
        else:
            self._bind_version(target, value, body, signature, node)

    def _bind_plain(
        self, target: ast.Ref, value: SSAValue | None, body: Body, signature: Signature | None
    ) -> None:
        name, i = target.name, self.names.index
        if signature is not None and signature.results == NEXT:
            self.messages.error(
                target.at,
                f"{signature.name} makes the next version of a state: write {name}@{i}+1 = "
                f"{signature.name}(...)",
            )
            if name in self.states:
                self._assign(name, value, body)
        elif name in self.states or name in self.names.symbols:
            self.messages.error(
                target.at,
                f"`{name}` is declared at {self.names.given.get(name)}; a step gives new names, or "
                f"{name}@{i}+1",
            )
        elif self.names.given.get(name) == target.at or self.names.give(name, target.at):
            body.scope.names.setdefault(name, value)
        else:
            body.scope.names.setdefault(name, None)

    def _bind_version(
        self,
        target: ast.Ref,
        value: SSAValue | None,
        body: Body,
        signature: Signature | None,
        node: ast.Statement,
    ) -> None:
        name, i = target.name, self.names.index
        if str(target.version) != f"{i}+1":
            base = target.version.base if isinstance(target.version, ast.Index) else i
            self.messages.once(
                f"@{base}" if base != i else f"@{target.at}",
                target.at,
                f"a step makes version @{i}+1 of its states; {target} can't be assigned",
            )
            if name in self.states:
                self._assign(name, None, body)
        elif name not in self.states:
            self._no_state(target, body)
            meant = self._state_of(target, node)
            if meant is not None:
                self._assign(meant, value, body)
        elif signature is not None and signature.results != NEXT:
            self.messages.error(
                target.at, f"{signature.name} gives a value, not a new version: write a plain name"
            )
        else:
            self._own_version(target, signature, node)
            self._assign(name, value, body)

    def _no_state(self, target: ast.Ref, body: Body) -> None:
        """Reports a name that has no versions, unless its declaration has an error."""
        name = target.name
        self.names.vague.add(name)
        if body.scope.holds(name) and body.scope.find(name) is None:
            return
        states = [n for n, s in self.names.symbols.items() if s.kind in ("model", "state")]
        text = f"`{name}` is not a model or state declared above{hint(name, states)}"
        self.messages.once(name, target.at, text)

    def _state_of(self, target: ast.Ref, node: ast.Statement) -> str | None:
        """The state that a target names; where it names none, the one that its call starts from."""
        if target.name in self.states:
            return target.name
        first = first_name(node.call) if node.call.name in OWN else None
        return first if first in self.states else None

    def _own_version(
        self, target: ast.Ref, signature: Signature | None, node: ast.Statement
    ) -> None:
        first = node.call.things[0].value if node.call.things else None
        own = signature is not None and signature.name in OWN
        wrong = isinstance(first, ast.Ref) and first.name not in (target.name, *self.names.vague)
        if own and wrong and first_name(node.call) in self.names.given:
            self.messages.error(
                target.at,
                f"{target} must come from {target.name}@{self.names.index}, not from {first}",
            )

    def _assign(self, name: str, value: SSAValue | None, body: Body) -> None:
        if value is None:
            self.names.vague.add(name)
            value = self.reader.poison(self.reader.top)
        self.states[name].after = value
        if name not in body.assigned:
            body.assigned.append(name)
