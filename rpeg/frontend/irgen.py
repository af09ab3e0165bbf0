"""From the syntax tree to L0: names, scopes, signatures. Rules about meaning are the IR's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.builder import Builder
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.rewriter import InsertPoint

from rpeg.frontend import ast
from rpeg.frontend.declare import Declare
from rpeg.frontend.names import (
    Declared,
    Messages,
    Names,
    Scope,
    State,
    assigned_states,
    first_name,
    statements,
)
from rpeg.frontend.steps import Body, StepGen
from rpeg.frontend.things import Reader
from rpeg.frontend.values import Settings
from rpeg.ir.ops.declare import PipelineOp
from rpeg.ir.ops.regions import YieldOp
from rpeg.ir.ops.sampling import value_type
from rpeg.ir.ops.step import StepOp
from rpeg.ir.rules import violations
from rpeg.ir.text.diagnostics import Diagnostic
from rpeg.ir.text.naming import forget_empty_names, values_of
from rpeg.ir.text.sources import Sources
from rpeg.ir.types.values import CursorType, OptimizerType


def generate(file: ast.File, sources: Sources) -> tuple[ModuleOp, list[Diagnostic]]:
    """The module of a text, and what is wrong with its names and signatures.

    Where something is wrong the module holds poisoned values, so that the verifiers can still speak
    of the rest; it must not be used for anything else.
    """
    block = Block()
    builder = Builder(InsertPoint.at_end(block))
    messages = Messages(sources.file)
    names: dict[str, ast.Pipeline] = {}
    for pipeline in file.pipelines:
        if pipeline.name in names:
            at = names[pipeline.name].at
            text = f"the pipeline `{pipeline.name}` is already defined at {at}"
            messages.error(pipeline.at, text)
            continue
        names[pipeline.name] = pipeline
        PipelineGen(pipeline, sources, messages.found).run(builder)
    module = ModuleOp(Region(block))
    module.location = sources.location(file.at)
    forget_empty_names(values_of(module))
    return module, messages.found


class PipelineGen:
    """Builds one pipeline."""

    def __init__(self, node: ast.Pipeline, sources: Sources, found: list[Diagnostic]) -> None:
        self.node = node
        self.sources = sources
        self.messages = Messages(sources.file, found)
        self.names = Names(self.messages, node.step.index)
        self.params: dict[str, ast.Literal | None] = {}
        self.used_params: set[str] = set()
        self.settings = Settings(self.messages, self.params, self.used_params)
        self.declare = Declare(self.names, self.messages, self.settings, sources)
        self.forms: dict[str, Declared | None] = {}

    def run(self, builder: Builder) -> None:
        """The pipeline, at the builder's place."""
        block = Block()
        properties: dict[str, Attribute] = {"sym_name": StringAttr(self.node.name)}
        op = builder.insert(PipelineOp.create(properties=properties, regions=[Region(block)]))
        op.location = self.sources.location(self.node.at)
        inside = Builder(InsertPoint.at_end(block))
        declared = {d.name for d in self.node.declarations if isinstance(d, ast.Symbol)}
        self.names.moving = assigned_states(self.node.step.body, declared)
        self._declarations(inside)
        self._step(inside)
        for expect in self.node.expects:
            self.declare.expect(expect, inside)
        for plan in self.node.plans:
            self.declare.plan(plan, inside)
        self._unused_params()

    def _declarations(self, builder: Builder) -> None:
        for node in self.node.declarations:
            match node:
                case ast.Param():
                    self._param(node)
                case ast.Symbol():
                    form = self.declare.symbol(node, builder)
                    if node.name not in self.forms:
                        self.forms[node.name] = Declared(node.kind, form) if form else None
                case ast.Allow():
                    self.declare.allow(node, builder)

    def _param(self, node: ast.Param) -> None:
        if not self.names.give(node.name, node.at):
            return
        if node.value.kind == "param":
            self.messages.error(node.value.at, "a param holds a literal, not another param")
            self.params[node.name] = None
        else:
            self.params[node.name] = node.value

    def _unused_params(self) -> None:
        for node in self.node.params:
            if node.name in self.params and node.name not in self.used_params:
                self.messages.error(
                    node.at,
                    f"the param `{node.name}` is never used: write ${node.name} where it belongs, "
                    "or remove it",
                    "warning",
                )

    # ---- the step

    def _step(self, builder: Builder) -> None:
        node = self.node.step
        count = self.settings.whole(node.count)
        block = Block()
        states, cursors = self._states(block)
        scope = Scope()
        for name, form in self.forms.items():
            scope.names[name] = states.get(name, form)
        op = StepOp.of(node.index, count if count is not None else 1, Region(block))
        op.location = self.sources.location(node.at)
        builder.insert(op)
        self.sources.record(op, {violations.setting("count"): node.count.at})
        body = Body(Builder(InsertPoint.at_end(block)), scope)
        top = Block()
        reader = Reader(
            self.names,
            self.messages,
            self.settings,
            self.sources,
            Builder(InsertPoint.at_end(top)),
            cursors,
        )
        StepGen(self.names, reader, states).body(node.body, body)
        _prepend(block, top)
        body.builder.insert(YieldOp.make(self._ends(block.args, states, cursors)))

    def _states(self, block: Block) -> tuple[dict[str, State], dict[str, SSAValue]]:
        """The step's arguments, in the order of the declarations."""
        step = list(statements(self.node.step.body))
        batched = {first_name(s.call) for s in step if s.call.name == "batch"}
        updates = [s for s in step if s.call.name == "update"]
        updated = {t.name for s in updates for t in s.targets} | {
            first_name(s.call) for s in updates
        }
        states: dict[str, State] = {}
        cursors: dict[str, SSAValue] = {}
        for name, form in self.forms.items():
            if form is None:
                continue
            if form.kind == "data" and name in batched:
                cursors[name] = _argument(block, CursorType(name, form.form), name)
            elif form.kind == "state" or (form.kind == "model" and name in self.names.moving):
                states[name] = State(_argument(block, value_type(form.kind, form.form, name), name))
                if name in updated:
                    states[name].optimizer = _argument(block, OptimizerType(name), f"{name}_opt")
        return states, cursors

    def _ends(
        self,
        arguments: Sequence[SSAValue],
        states: Mapping[str, State],
        cursors: Mapping[str, SSAValue],
    ) -> list[SSAValue]:
        ends: dict[SSAValue, SSAValue] = {}
        for state in states.values():
            ends[state.start] = state.after or state.start
            if state.optimizer is not None:
                ends[state.optimizer] = state.optimizer_after or state.optimizer
        by_name = {v.type.symbol: v for v in cursors.values() if isinstance(v.type, CursorType)}
        for argument in arguments:
            if isinstance(argument.type, CursorType):
                ends[argument] = by_name[argument.type.symbol]
        return [ends[a] for a in arguments]


def _argument(block: Block, held: Attribute, name: str) -> SSAValue:
    argument = block.insert_arg(held, len(block.args))
    argument.name_hint = name
    return argument


def _prepend(block: Block, top: Block) -> None:
    """Moves the operations of `top` to the start of `block`."""
    first = block.first_op
    for op in list(top.ops):
        top.detach_op(op)
        if first is None:
            block.add_op(op)
        else:
            block.insert_op_before(op, first)
