"""What every pass shares: its kind, refusals with a place, locations that survive rewrites."""

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

from xdsl.dialects.builtin import ModuleOp, StringAttr, UnknownLoc
from xdsl.ir import Operation
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from rpeg.ir.declared import declarations, symbol_name
from rpeg.ir.ops.declare import ExpectOp, ModelOp, PipelineOp
from rpeg.ir.ops.plan import PlaceOp
from rpeg.ir.ops.step import StepOp
from rpeg.ir.stages import stages, value_names

Kind = Literal["X", "S", "XS"]


class RpegPass(ModulePass):
    """A pass of ours. X: execution only, the same numbers; S: structural, needs an `allow` line; XS: X where it says."""

    KIND: ClassVar[Kind] = "X"


class PassRefused(Exception):
    """A pass cannot do what it was asked to: where, and why."""

    def __init__(self, op: Operation, message: str) -> None:
        super().__init__(message)
        self.problems: list[tuple[Operation, str]] = [(op, message)]

    @staticmethod
    def of(problems: Sequence[tuple[Operation, str]]) -> "PassRefused":
        """One refusal for several places."""
        refusal = PassRefused(*problems[0])
        refusal.problems = list(problems)
        return refusal


def pipelines(module: ModuleOp) -> Iterator[PipelineOp]:
    """The pipelines of a module."""
    yield from (op for op in module.ops if isinstance(op, PipelineOp))


def step(pipeline: PipelineOp) -> StepOp:
    """The step of a verified pipeline."""
    return next(op for op in pipeline.body.block.ops if isinstance(op, StepOp))


class KeepLocations(RewritePattern):
    """Gives operations that a pattern makes the location of the operation it matched."""

    def __init__(self, inner: RewritePattern) -> None:
        self.inner = inner

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        at = op.location

        def stamp(made: Operation) -> None:
            if isinstance(made.location, UnknownLoc):
                made.location = at

        rewriter.operation_insertion_handler.append(stamp)
        try:
            self.inner.match_and_rewrite(op, rewriter)
        finally:
            rewriter.operation_insertion_handler.remove(stamp)


def drop_unused(pipeline: PipelineOp, before: set[str]) -> None:
    """Drops what a rewrite left without a use: declarations, and lines about stages that are gone.

    `before` names what was there before the rewrite: what a user declared and never used stays.
    """
    _drop_declarations(pipeline)
    known = {*stages(pipeline), *value_names(pipeline)}
    known |= {name for d in declarations(pipeline) if (name := symbol_name(d)) is not None}
    gone = before - known
    for op in list(pipeline.walk()):
        if isinstance(op, PlaceOp) and op.title in gone:
            op.detach()
            op.erase()
        if isinstance(op, ExpectOp) and op.target.data in gone:
            op.detach()
            op.erase()


def names(pipeline: PipelineOp) -> set[str]:
    """Names of the stages, values and declarations of a pipeline."""
    declared = {n for d in declarations(pipeline) if (n := symbol_name(d)) is not None}
    return declared | set(stages(pipeline)) | value_names(pipeline)


def _drop_declarations(pipeline: PipelineOp) -> None:
    for op in list(pipeline.body.block.ops):
        if isinstance(op, ModelOp) and op.optim is None and not op.used():
            op.detach()
            op.erase()


def title(op: Operation) -> str:
    """The name that an operation declares."""
    held = op.properties.get("sym_name")
    return held.data if isinstance(held, StringAttr) else ""


