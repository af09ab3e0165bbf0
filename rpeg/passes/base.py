"""What every pass shares: kind, legality, statistics, refusals with a place, cleaning up."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar, Literal, NamedTuple

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter
from xdsl.traits import is_side_effect_free

from rpeg.ir.levels import LevelName, level_violations
from rpeg.ir.ops.allow import AllowOp
from rpeg.ir.ops.declare import DeclareOp, ExpectOp, PipelineOp
from rpeg.ir.ops.plan import PlaceOp
from rpeg.ir.ops.step import StepOp
from rpeg.ir.rules.violations import WHOLE, Anchor
from rpeg.ir.stages import stages, value_names
from rpeg.ir.text.diagnostics import Position
from rpeg.ir.text.sources import position_of
from rpeg.ir.types.attributes import RecordAttr
from rpeg.passes.legality import Condition, Legality, Reason, reasons
from rpeg.passes.statistics import Meanings, Statistics

__all__ = [
    "Condition",
    "Kind",
    "Legality",
    "Levels",
    "PassRefused",
    "Problem",
    "RpegPass",
    "pipelines",
    "step",
    "tidied",
]

Kind = Literal["X", "S", "XS"]
Levels = Mapping[LevelName, LevelName]


@dataclass(frozen=True)
class RpegPass(ModulePass):
    """A pass of ours: what it may do to the numbers, when, and what it counts."""

    KIND: ClassVar[Kind] = "X"
    """X: execution only, the same numbers up to rounding; S: structural, other numbers, and the
    text has to allow it; XS: X under the conditions, S elsewhere."""
    LEVELS: ClassVar[Levels] = MappingProxyType({"L0": "L0"})
    """The levels of the modules that it takes, each with the level that it then gives."""
    ALLOW: ClassVar[str] = ""
    """The `allow` line that a pass needs which may be structural."""
    LEGALITY: ClassVar[Legality] = ()
    """The conditions that a place in the graph must meet for the rewrite."""
    STATISTICS: ClassVar[Meanings] = {}
    """What it counts."""
    statistics: Statistics = field(
        default_factory=Statistics, init=False, repr=False, compare=False
    )
    """Counts of all runs of this object."""
    missed: list[Reason] = field(
        default_factory=list[Reason], init=False, repr=False, compare=False
    )
    """The conditions that candidates broke, in the order in which `legal` was asked."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrites a module of one of LEVELS.

        Raises PassRefused for a module of another level, for what the rewrite refuses, and for what
        it leaves that is not legal at the level that it gives.
        """
        gives = self.LEVELS[self._level(op)]
        self.rewrite(ctx, op)
        if left := list(_illegal(op, gives, "gives")):
            raise PassRefused.of(left)

    def _level(self, module: ModuleOp) -> LevelName:
        """The level of a module, among those that this pass takes. Raises PassRefused with the
        first problem if it has none of them.
        """
        problems: list[Problem] = []
        for level in self.LEVELS:
            problem = next(_illegal(module, level, "takes"), None)
            if problem is None:
                return level
            problems.append(problem)
        raise PassRefused.of(problems[:1])

    @abstractmethod
    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrites a verified module in place. Raises PassRefused."""

    def count(self, what: str, number: int = 1) -> None:
        """Counts `number` more of one of STATISTICS."""
        assert what in self.STATISTICS, f"{self.name} does not say what `{what}` counts"
        self.statistics.add(what, number)

    def legal(self, candidate: object) -> bool:
        """Whether a candidate meets LEGALITY; where not, `rpeg-opt --pass-remarks` says why."""
        broken = next(reasons(self.LEGALITY, candidate), None)
        if broken is not None:
            self.missed.append(broken)
        return broken is None

    def require(self, candidate: object) -> None:
        """Raises PassRefused with every condition that a candidate breaks, each at its place."""
        broken = [Problem(*reason) for reason in reasons(self.LEGALITY, candidate)]
        if broken:
            raise PassRefused.of(broken)

    def allowed(self, pipeline: PipelineOp) -> RecordAttr:
        """The user's permission to change the numbers. Raises PassRefused without one."""
        lines = pipeline.ops_of(AllowOp)
        found = next((o.permission for o in lines if o.permission.kind == self.ALLOW), None)
        if found is None:
            text = f"this changes what is trained: add `allow {self.ALLOW}(...)` to permit it"
            raise PassRefused(pipeline, text)
        return found


class Problem(NamedTuple):
    """What a pass cannot do with an operation, or with a part of it."""

    op: Operation
    message: str
    anchor: Anchor = WHOLE
    rule: str = ""
    """The code of the verifier's rule that is broken, if one is."""

    @property
    def at(self) -> Position:
        """Where it is in the text."""
        return position_of(self.op, self.anchor)


class PassRefused(Exception):
    """A pass cannot do what it was asked to: where, and why."""

    def __init__(self, op: Operation, message: str, anchor: Anchor = WHOLE) -> None:
        super().__init__(message)
        self.problems: list[Problem] = [Problem(op, message, anchor)]

    @staticmethod
    def of(problems: Sequence[Problem]) -> "PassRefused":
        """One refusal for several places."""
        first = problems[0]
        refusal = PassRefused(first.op, first.message, first.anchor)
        refusal.problems = list(problems)
        return refusal


def _illegal(module: ModuleOp, level: LevelName, what: str) -> Iterator[Problem]:
    """Everything that is illegal in a module at a level, as problems of a pass."""
    found = level_violations(module, level)
    yield from (Problem(op, f"{what} {level}: {v.message}", rule=v.code) for op, v in found)


def pipelines(module: ModuleOp) -> Iterator[PipelineOp]:
    """The pipelines of a module."""
    yield from (op for op in module.ops if isinstance(op, PipelineOp))


def step(pipeline: PipelineOp) -> StepOp:
    """The step of a verified pipeline."""
    return pipeline.ops_of(StepOp)[0]


@contextmanager
def tidied(module: ModuleOp) -> Iterator[None]:
    """Drops what the rewrite inside leaves without a use: values, declarations, and lines of plans
    and `expect` about names that are gone. What was unused before stays.
    """
    before = {pipeline: _Named.of(pipeline) for pipeline in pipelines(module)}
    unread = {op for op in module.walk() if _unread(op)}
    yield
    for op in reversed(list(module.walk())):
        if _unread(op) and op not in unread:
            Rewriter.erase_op(op)
    for pipeline, named in before.items():
        for op in reversed(named.used):
            if not op.used():
                Rewriter.erase_op(op)
        now = _Named.of(pipeline)
        for line in list(pipeline.walk()):
            match line:
                case PlaceOp() if line.title in named.placed - now.placed:
                    Rewriter.erase_op(line)
                case ExpectOp() if line.target.data in named.names - now.names:
                    Rewriter.erase_op(line)
                case _:
                    pass


@dataclass(frozen=True)
class _Named:
    """Names that lines of a pipeline can refer to, and its declarations that are used."""

    placed: frozenset[str]
    """Stages and declarations: what a plan has lines for."""
    names: frozenset[str]
    used: tuple[DeclareOp, ...]

    @staticmethod
    def of(pipeline: PipelineOp) -> "_Named":
        declared = pipeline.ops_of(DeclareOp)
        placed = frozenset([*stages(pipeline), *(op.title for op in declared)])
        used = tuple(op for op in declared if op.used())
        return _Named(placed, placed | value_names(pipeline), used)


def _unread(op: Operation) -> bool:
    """Whether an operation has no effect but its results, and nothing reads them."""
    return bool(op.results) and is_side_effect_free(op) and not any(r.uses for r in op.results)
