"""L1: bounded queues of trajectories, between stages that do not run in step with each other.

A buffer is a state of the step, whose type says what a group in it consists of, how many groups it
holds, and how many steps a group may wait. So lags stay in the types: what leaves a buffer is as
old as it came, and up to `age` steps more.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, traits_def, var_result_def
from xdsl.traits import Pure

from rpeg.ir.base import RpegOp
from rpeg.ir.definitions import Flow, gives, many, operand, required
from rpeg.ir.rules import violations
from rpeg.ir.rules.violations import Violation
from rpeg.ir.text.naming import name_of
from rpeg.ir.types.buffer import BufferType
from rpeg.ir.types.values import TrajectoriesType
from rpeg.ir.vocabulary.patterns import Pattern
from rpeg.ir.vocabulary.settings import INT
from rpeg.ir.vocabulary.signature import Scope

ROWS = "traj | tok | seq"


@irdl_op_definition
class PushOp(RpegOp):
    """Puts groups into a buffer; while it is full, they wait: `rpeg.push %queue, %y, %lp`."""

    name = "rpeg.push"
    SCOPE: ClassVar[Scope] = "group"
    buffer = operand("buffer")
    rows = many(ROWS, at_least_one=True)
    pushed = gives("buffer")
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        return [self.buffer.type]

    def rules(self) -> Iterator[Violation]:
        held = self.buffer.type
        assert isinstance(held, BufferType)
        if len(self.rows) != len(held.rows):
            yield Violation(
                "buffer-rows",
                f"`{held.title}` holds {len(held.rows)} values per group; "
                f"{len(self.rows)} are pushed",
            )
            return
        for index, (value, wanted) in enumerate(zip(self.rows, held.rows, strict=True), 1):
            found = (
                value.type.resized(1) if isinstance(value.type, TrajectoriesType) else value.type
            )
            if found != wanted:
                text = f"`{held.title}` holds {wanted} here; `{name_of(value)}` is {found} a group"
                yield Violation("buffer-rows", text, violations.operand(index))
        yield from self._size_rule(held)

    def _size_rule(self, held: BufferType) -> Iterator[Violation]:
        y = self.rows[0].type
        if isinstance(y, TrajectoriesType) and y.prompts.data > held.groups:
            yield Violation(
                "buffer-too-small",
                f"`{held.title}` holds {held.groups} groups, and {y.prompts.data} are pushed at "
                f"once: this never ends; write capacity = {y.prompts.data} or more",
                violations.operand(0),
            )


def _group(row: Attribute) -> Attribute:
    """The type of a value's part in one group."""
    return row.resized(1) if isinstance(row, TrajectoriesType) else row


def _left() -> Sequence[SSAValue]:
    return var_result_def(Flow(Pattern.parse(f"{ROWS} | buffer"), inferred=True))


@irdl_op_definition
class PopOp(RpegOp):
    """Takes a number of groups out of a buffer: `%y, %lp, %queue_2 = rpeg.pop %queue_1 {groups =
    32}`.
    """

    name = "rpeg.pop"
    SCOPE: ClassVar[Scope] = "group"
    buffer = operand("buffer")
    groups = required(INT, least=1)
    popped = _left()
    traits = traits_def(Pure())

    def result_count(self) -> int:
        held = self.buffer.type
        return len(held.rows) + 1 if isinstance(held, BufferType) else len(self.results)

    def infer(self) -> Sequence[Attribute]:
        held = self.buffer.type
        assert isinstance(held, BufferType)
        return [*held.popped(self.int_of("groups")), held]

    def rules(self) -> Iterator[Violation]:
        held, groups = self.buffer.type, self.int_of("groups")
        assert isinstance(held, BufferType)
        if groups > held.groups:
            yield Violation(
                "buffer-too-small",
                f"`{held.title}` holds {held.groups} groups, one pop takes {groups}: this never "
                f"starts; write capacity = {groups} or more",
                violations.setting("groups"),
            )


OPS: tuple[type[RpegOp], ...] = (PushOp, PopOp)
