"""What every pass shares: its kind, refusals with a place, statistics, tidying up."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass
from xdsl.transforms.dead_code_elimination import DeadCodeElimination

from rpeg.ir.diagnostics import Position
from rpeg.ir.ops.declare import DeclareOp, ExpectOp, PipelineOp
from rpeg.ir.ops.plan import PlaceOp
from rpeg.ir.ops.step import StepOp
from rpeg.ir.sources import position_of
from rpeg.ir.stages import stages, value_names
from rpeg.ir.violations import WHOLE, Anchor

Kind = Literal["X", "S", "XS"]


class RpegPass(ModulePass):
    """A pass of ours. X: execution only, the same numbers; S: structural, needs an `allow` line;
    XS: X where it says so.
    """

    KIND: ClassVar[Kind] = "X"


class Problem(NamedTuple):
    """What a pass cannot do with an operation, or with a part of it."""

    op: Operation
    message: str
    anchor: Anchor = WHOLE

    @property
    def at(self) -> Position:
        """Where that stands."""
        return position_of(self.op, self.anchor)


class PassRefused(Exception):
    """A pass cannot do what it was asked to: where, and why."""

    def __init__(self, op: Operation, message: str, anchor: Anchor = WHOLE) -> None:
        super().__init__(message)
        self.problems: list[Problem] = [Problem(op, message, anchor)]

    @staticmethod
    def of(problems: Sequence[Problem]) -> "PassRefused":
        """One refusal for several places."""
        refusal = PassRefused(*problems[0])
        refusal.problems = list(problems)
        return refusal


_counts: ContextVar[Counter[str] | None] = ContextVar("counts", default=None)


def count(what: str, number: int = 1) -> None:
    """Adds to a statistic of the pass that runs; `rpeg-opt --pass-statistics` shows them."""
    counts = _counts.get()
    if counts is not None:
        counts[what] += number


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """What the passes that run inside count."""
    counts = Counter[str]()
    token = _counts.set(counts)
    try:
        yield counts
    finally:
        _counts.reset(token)


def pipelines(module: ModuleOp) -> Iterator[PipelineOp]:
    """The pipelines of a module."""
    yield from (op for op in module.ops if isinstance(op, PipelineOp))


def step(pipeline: PipelineOp) -> StepOp:
    """The step of a verified pipeline."""
    return next(op for op in pipeline.body.block.ops if isinstance(op, StepOp))


@contextmanager
def tidied(module: ModuleOp) -> Iterator[None]:
    """Drops what the rewrite inside leaves without a use: values, declarations, and lines of plans
    and `expect` about names that are gone. What was unused before stays.
    """
    before = {pipeline: _Named.of(pipeline) for pipeline in pipelines(module)}
    yield
    size = _size(module)
    DeadCodeElimination().apply(Context(), module)
    count("operations without a use removed", size - _size(module))
    for pipeline, named in before.items():
        for op in reversed(named.used):
            if not op.used():
                erase(op)
                count("declarations removed")
        now = _Named.of(pipeline)
        for line in list(pipeline.walk()):
            match line:
                case PlaceOp() if line.title in named.placed - now.placed:
                    erase(line)
                case ExpectOp() if line.target.data in named.names - now.names:
                    erase(line)
                case _:
                    pass


def _size(module: ModuleOp) -> int:
    return sum(1 for _ in module.walk())


@dataclass(frozen=True)
class _Named:
    """What lines of a pipeline can speak of, and its declarations that something uses."""

    placed: frozenset[str]
    """Stages and declarations: what a plan has lines for."""
    names: frozenset[str]
    used: tuple[DeclareOp, ...]

    @staticmethod
    def of(pipeline: PipelineOp) -> "_Named":
        declared = [op for op in pipeline.body.block.ops if isinstance(op, DeclareOp)]
        placed = frozenset([*stages(pipeline), *(op.title for op in declared)])
        used = tuple(op for op in declared if op.used())
        return _Named(placed, placed | value_names(pipeline), used)


def erase(op: Operation) -> None:
    """Takes an operation out of its block."""
    block = op.parent_block()
    assert block is not None
    block.erase_op(op)
