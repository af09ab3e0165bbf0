"""Declarations, expectations and plans: everything of a pipeline but its step, as IR."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xdsl.builder import Builder
from xdsl.dialects.builtin import ArrayAttr, StringAttr, SymbolRefAttr
from xdsl.ir import Attribute, Block, Operation, Region
from xdsl.rewriter import InsertPoint

from rpeg.frontend import ast
from rpeg.frontend.names import Messages, Names, Scope, hint
from rpeg.frontend.things import record_things, source_attribute, spread
from rpeg.frontend.values import Settings, absent, meant_setting
from rpeg.ir.ops.allow import AllowOp
from rpeg.ir.ops.declare import ExpectOp
from rpeg.ir.ops.plan import PlaceOp, PlanOp, PoolOp
from rpeg.ir.rules import violations
from rpeg.ir.rules.plan import unknown_pool
from rpeg.ir.rules.violations import Anchor
from rpeg.ir.text.diagnostics import Position
from rpeg.ir.text.sources import Sources
from rpeg.ir.types.attributes import RecordAttr
from rpeg.ir.vocabulary.signature import Signature
from rpeg.ir.vocabulary.tables import ALLOW, CLAUSES, EXPECT, POOLS, constructors, declaration_class


def lookup(
    call: ast.Call, table: Mapping[str, Signature], what: str, messages: Messages
) -> Signature | None:
    """The signature of a call; None, with a message, if there is no such word."""
    if call.name in table:
        return table[call.name]
    near = hint(call.name, table)
    known = f"; known: {', '.join(sorted(table))}" if not near and len(table) < 12 else ""
    messages.error(call.at, f"`{call.name}` is not {what}{near}{known}", rule="unknown-word")
    return None


class Declare:
    """Builds the operations of a pipeline outside its step."""

    def __init__(
        self, names: Names, messages: Messages, settings: Settings, sources: Sources
    ) -> None:
        self.names = names
        self.messages = messages
        self.settings = settings
        self.sources = sources
        self.broken: set[str] = set()
        """Names of declarations that have errors: what starts from them gets no further messages.
        """
        self.plans: dict[str, Position] = {}

    # ---- what exists

    def symbol(self, node: ast.Symbol, builder: Builder) -> str | None:
        """A declared thing; its form, or None where there is a message."""
        signature = lookup(
            node.call, constructors(node.kind), f"a kind of {node.kind}", self.messages
        )
        fresh = self.names.give(node.name, node.at)
        if fresh:
            self.names.symbols[node.name] = node
        if signature is None:
            self.broken.add(node.name)
            return None
        things_first(node.call, signature, self.messages)
        missing = absent(node.call, signature)
        source = self._source(node, signature, missing)
        given = self.settings.read(node.call, signature, missing)
        if not fresh or not given.sound or (signature.operands and source is None):
            self.broken.add(node.name)
            return signature.name if fresh else None
        properties: dict[str, Attribute] = {
            "sym_name": StringAttr(node.name),
            "form": StringAttr(signature.name),
            **({"source": source} if source is not None else {}),
            **given.values,
        }
        op = builder.insert(declaration_class(node.kind).create(properties=properties))
        op.location = self.sources.location(node.at)
        anchors = dict(given.anchors)
        if node.call.things:
            anchors[violations.setting("source")] = node.call.things[0].value.at
        self.sources.record(op, anchors)
        return signature.name

    def _source(
        self, node: ast.Symbol, signature: Signature, missing: list[str]
    ) -> Attribute | None:
        pairs = spread(node.call, signature, self.messages, missing)
        if not pairs:
            return None
        arg, spec = pairs[0]
        if isinstance(arg.value, ast.Ref) and spec.pattern.includes("init"):
            return self._initial(arg.value)
        if isinstance(arg.value, ast.Literal):
            value = self.settings.resolve(arg.value)
            if value is None:
                return None
            arg = ast.Arg(None, value, at=arg.at)
        return source_attribute(arg, signature, spec, self.messages)

    def _initial(self, ref: ast.Ref) -> Attribute | None:
        other = self.names.symbols.get(ref.name)
        if other is None or other.kind != "model":
            near = hint(ref.name, self.names.symbols)
            text = f"`{ref.name}` is not a model declared above{near}"
            self.messages.once(ref.name, ref.at, text)
            return None
        if str(ref.version) != "0":
            text = f"a declaration starts from initial weights: write {ref.name}@0"
            self.messages.error(ref.at, text)
            return None
        return None if ref.name in self.broken else SymbolRefAttr(ref.name)

    def allow(self, node: ast.Allow, builder: Builder) -> None:
        """A permission."""
        record = self.record(node.call, ALLOW, "a permission")
        if record is not None:
            op = builder.insert(AllowOp.create(properties={"permission": record[0]}))
            self._place(op, node.at, record[1])

    def expect(self, node: ast.Expect, builder: Builder) -> None:
        """A distribution of something of the pipeline."""
        if node.name not in self.names.given and node.name not in self.names.vague:
            near = hint(node.name, self.names.given)
            self.messages.once(node.name, node.at, f"`{node.name}` is not defined{near}")
        record = self.record(node.call, EXPECT, "a distribution")
        if record is not None:
            target = StringAttr(node.name)
            properties: dict[str, Attribute] = {"target": target, "distribution": record[0]}
            self._place(builder.insert(ExpectOp.create(properties=properties)), node.at, record[1])

    # ---- records

    def record(
        self, call: ast.Call, table: Mapping[str, Signature], what: str, path: str = ""
    ) -> tuple[RecordAttr, dict[Anchor, Position]] | None:
        """A word with its settings, and where they stand."""
        signature = lookup(call, table, what, self.messages)
        if signature is None:
            return None
        before = len(self.messages.found)
        things_first(call, signature, self.messages)
        missing = absent(call, signature)
        things = record_things(call, signature, self.messages, missing)
        given = self.settings.read(call, signature, missing)
        if len(self.messages.found) > before:
            return None
        anchors = {violations.setting(f"{path}{a.key}"): at for a, at in given.anchors.items()}
        for spec, arg in zip(signature.operands, call.things, strict=False):
            anchors[violations.setting(path + spec.name)] = arg.value.at
        return RecordAttr.make(signature.name, {**things, **given.values}), anchors

    # ---- where it runs

    def plan(self, node: ast.Plan, builder: Builder) -> None:
        """A plan with its pools and lines; none if a plan or a declaration has its name already."""
        declared = self.names.symbols.get(node.name)
        taken = declared.at if declared is not None else self.plans.get(node.name)
        if taken is not None:
            text = f"`{node.name}` is already defined at {taken}: give the plan another name"
            self.messages.error(node.at, text)
            return
        self.plans[node.name] = node.at
        block = Block()
        properties: dict[str, Attribute] = {
            "sym_name": StringAttr(node.name),
            "cluster": StringAttr(node.cluster),
        }
        op = builder.insert(PlanOp.create(properties=properties, regions=[Region(block)]))
        self._place(op, node.at, {violations.setting("cluster"): node.cluster_at})
        inside = Builder(InsertPoint.at_end(block))
        pools: dict[str, Position] = {}
        for pool in node.pools:
            self._pool(pool, pools, inside)
        known = {pool.title for pool in op.pools}
        unclear = {pool.name for pool in node.pools} - known
        for place in node.places:
            self._line(place, inside, known, unclear)

    def _pool(self, node: ast.Pool, pools: dict[str, Position], builder: Builder) -> None:
        record = self.record(node.call, POOLS, "a kind of pool")
        taken = self.names.given.get(node.name, pools.get(node.name))
        if taken is not None:
            self.messages.error(node.at, f"`{node.name}` is already defined at {taken}")
            return
        pools[node.name] = node.at
        shape = record[0] if record is not None else RecordAttr.make("nodes", {})
        properties: dict[str, Attribute] = {"sym_name": StringAttr(node.name), "shape": shape}
        op = PoolOp.create(properties=properties)
        if record is not None:
            # The rules speak of its range by one name, whatever the kind of pool calls it.
            anchors = dict(record[1])
            if node.call.things:
                anchors[violations.setting("which")] = node.call.things[0].value.at
            self._place(builder.insert(op), node.at, anchors)

    def _line(self, node: ast.Place, builder: Builder, pools: set[str], unclear: set[str]) -> None:
        """A line of a plan, left out where an error in it would cause others. An unknown pool is
        reported once: then it is one of the `unclear`.
        """
        anchors: dict[Anchor, Position] = {violations.setting("pool"): node.pool_at}
        clauses: list[RecordAttr] = []
        named = [(node.pool, node.pool_at)]
        for call in node.clauses:
            record = self.record(call, CLAUSES, "a clause", f"{len(clauses)}.")
            if record is not None:
                anchors[violations.clause(len(clauses))] = call.at
                anchors |= record[1]
                clauses.append(record[0])
                named += _published(call, record[0])
        properties: dict[str, Attribute] = {
            "stage": StringAttr(node.stage),
            "pool": SymbolRefAttr(node.pool),
            "clauses": ArrayAttr(clauses),
        }
        sound = len(clauses) == len(node.clauses) and all(name in pools for name, _ in named)
        for name, at in named:
            if name not in pools | unclear:
                unclear.add(name)
                self.messages.error(at, unknown_pool(name, pools), rule="unknown-pool")
        told = self.names.vague | self.messages.silent
        follows = not sound and (node.stage in self.names.moving or node.pool not in pools)
        if not follows and node.stage not in told:
            self._place(builder.insert(PlaceOp.create(properties=properties)), node.at, anchors)

    def _place(self, op: Operation, at: Position, anchors: dict[Anchor, Position]) -> None:
        op.location = self.sources.location(at)
        self.sources.record(op, anchors)


def _published(call: ast.Call, clause: RecordAttr) -> Iterator[tuple[str, Position]]:
    """The pool that a clause publishes to, and where it says so."""
    to = clause.settings.get("to") if clause.kind == "publish" else None
    if isinstance(to, StringAttr):
        yield to.data, call.things[0].value.at


def things_first(
    call: ast.Call, signature: Signature, messages: Messages, scope: Scope | None = None
) -> None:
    """Things stand before settings. Surplus things, and unknown names that look like settings, get
    messages of their own.
    """
    many = any(spec.many for spec in signature.operands)
    named = tuple(arg for arg in call.things if not _is_number(arg.value))
    taken = named if many else named[: len(signature.operands)]
    if scope is not None:
        taken = tuple(arg for arg in taken if not _is_setting(arg.value, signature, scope))
    for before, after in zip(call.args, call.args[1:], strict=False):
        if before.name is not None and after in taken:
            text = "things come before settings: move it before the first name=value"
            messages.error(after.at, text)


def _is_number(value: ast.Value) -> bool:
    """Whether it is the value of a setting, which another message says."""
    return isinstance(value, ast.Literal) and value.kind != "str"


def _is_setting(value: ast.Value, signature: Signature, scope: Scope) -> bool:
    if not isinstance(value, ast.Ref) or scope.holds(value.name):
        return False
    return meant_setting(value, signature) is not None
