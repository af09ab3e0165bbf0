"""Operations with a region: every, collect and its terminator keep; yield ends the others."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    irdl_op_definition,
    region_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import IsTerminator, NoTerminator

from rpeg.ir.base import CheckedOp, RpegOp
from rpeg.ir.definitions import Flow, many, operand, required, setting
from rpeg.ir.rules import violations
from rpeg.ir.rules.horizon import never_due
from rpeg.ir.rules.violations import Violation
from rpeg.ir.text.naming import name_of, trajectories_of
from rpeg.ir.types.values import (
    CursorType,
    ResponseFieldType,
    TokenFieldType,
    TrajectoriesType,
    UnknownType,
    is_unknown,
)
from rpeg.ir.vocabulary.patterns import Pattern
from rpeg.ir.vocabulary.settings import INT, word
from rpeg.ir.vocabulary.signature import Scope

STATES = "model | opt | cursor | state | buffer"


def _carried() -> Sequence[SSAValue]:
    return var_operand_def(Flow(Pattern.parse(STATES), hidden=True))


def _given(pattern: str) -> Sequence[SSAValue]:
    return var_result_def(Flow(Pattern.parse(pattern), inferred=True))


def terminator_of(op: Operation) -> Operation | None:
    """The last operation of an operation's only block."""
    block = op.regions[0].first_block if op.regions else None
    return block.last_op if block is not None else None


@irdl_op_definition
class YieldOp(RpegOp):
    """Ends a step or an `every`: the versions of the states as it ends."""

    name = "rpeg.yield"
    SCOPE: ClassVar[Scope] = "step"
    READS_NEXT: ClassVar[bool] = True
    states = _carried()
    traits = traits_def(IsTerminator())


@irdl_op_definition
class EveryOp(RpegOp):
    """Runs its region when i+1 is a multiple of steps and i >= from; other state is carried."""

    name = "rpeg.every"
    SURFACE: ClassVar[str] = "every"
    SCOPE: ClassVar[Scope] = "step"
    REGION: ClassVar[bool] = True
    READS_NEXT: ClassVar[bool] = True
    traits = traits_def(NoTerminator())  # its own rule says more than xDSL's
    carried = _carried()
    steps = required(INT, "20", least=1)
    from_ = setting(INT, 0, least=0, name="from")
    body = region_def("single_block")
    after = _given(STATES)

    def result_count(self) -> int:
        return len(self.carried)

    def infer(self) -> Sequence[Attribute]:
        ending = terminator_of(self)
        if not isinstance(ending, YieldOp):
            return [v.type for v in self.carried]
        return [v.type for v in ending.operands]

    def rules(self) -> Iterator[Violation]:
        yield from never_due(self)
        ending = terminator_of(self)
        if not isinstance(ending, YieldOp):
            yield Violation("missing-terminator", "every ends with rpeg.yield")
        elif len(ending.operands) != len(self.carried):
            yield Violation(
                "yield-count",
                f"every carries {len(self.carried)} states and yields {len(ending.operands)}",
            )


@irdl_op_definition
class KeepOp(RpegOp):
    """Ends a collect region: which groups it keeps, and which of their values.

    mixed = the rewards of the group are not all equal; nonzero = their sum is not zero.
    """

    name = "rpeg.keep"
    SURFACE: ClassVar[str] = "keep"
    SCOPE: ClassVar[Scope] = "group"
    LENIENT: ClassVar[bool] = True
    by = operand("seq.reward")
    values = many("traj | seq | tok | cursor")
    where = required(word("mixed", "nonzero"))
    traits = traits_def(IsTerminator())

    @property
    def kept(self) -> Sequence[SSAValue]:
        """What leaves the region, the rewards first; without the data cursors."""
        return [v for v in self.operands if not isinstance(v.type, CursorType)]

    @property
    def cursors(self) -> Sequence[SSAValue]:
        """Data cursors after the region."""
        return [v for v in self.operands if isinstance(v.type, CursorType)]

    def rules(self) -> Iterator[Violation]:
        parent = self.parent_op()
        if parent is not None and (parent.name != "rpeg.collect" or self.next_op is not None):
            yield Violation(
                "collect-without-keep", "keep is the last line of a collect region, and only there"
            )
        kept = list(self.kept)
        for index, value in enumerate(kept):
            y = trajectories_of(value)
            field = isinstance(value.type, TokenFieldType | ResponseFieldType)
            if field and y is not None and not is_unknown(y.type) and y not in kept:
                yield Violation(
                    "kept-without-trajectories",
                    f"`{name_of(value)}` belongs to the trajectories `{name_of(y)}`: keep "
                    f"`{name_of(y)}` too",
                    violations.operand(index),
                )

    def _same_trajectories(self) -> Iterator[Violation]:
        return iter(())


@irdl_op_definition
class CollectOp(RpegOp):
    """Runs its region until so many groups are kept; the surplus is dropped."""

    name = "rpeg.collect"
    SURFACE: ClassVar[str] = "collect"
    SCOPE: ClassVar[Scope] = "batch"
    REGION: ClassVar[bool] = True
    traits = traits_def(NoTerminator())
    carried = _carried()
    groups = required(INT, "64", least=1)
    max_rounds = required(INT, "10", least=1)
    body = region_def("single_block")
    kept = _given("kept")

    def result_count(self) -> int:
        ending = terminator_of(self)
        return len(ending.operands) if isinstance(ending, KeepOp) else len(self.carried)

    def infer(self) -> Sequence[Attribute]:
        ending = terminator_of(self)
        if not isinstance(ending, KeepOp):
            return [UnknownType() for _ in self.carried]
        groups = self.int_of("groups")
        return [
            v.type.resized(groups) if isinstance(v.type, TrajectoriesType) else v.type
            for v in ending.operands
        ]

    def rules(self) -> Iterator[Violation]:
        if not any(isinstance(op, KeepOp) for op in self.body.block.ops):
            yield Violation(
                "collect-without-keep", "a collect region ends with keep(rewards, ..., where=mixed)"
            )


OPS: tuple[type[CheckedOp], ...] = (EveryOp, CollectOp, KeepOp, YieldOp)
