"""L1: where stages run, and the movement of weights between them, made explicit."""

from collections.abc import Iterator, Sequence
from typing import ClassVar, Self

from xdsl.dialects.builtin import IntegerAttr, StringAttr, SymbolNameConstraint, i64
from xdsl.ir import Attribute, Operation
from xdsl.irdl import irdl_op_definition, prop_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure, SymbolOpInterface

from rpeg.ir.base import CheckedOp, RpegOp
from rpeg.ir.declared import symbol_name
from rpeg.ir.definitions import gives, operand
from rpeg.ir.rules.violations import Violation
from rpeg.ir.types.attributes import RecordAttr
from rpeg.ir.types.values import WeightsType
from rpeg.ir.vocabulary.signature import Scope

POOL = "pool"
"""The attribute of a stage that names its process group."""
CLAUSES = ("par", "mb", "engine", "resid", "stream", "publish", "fuse")
"""Attributes of a stage that say how it runs there: the clauses of its line in a plan."""


@irdl_op_definition
class RanksOp(CheckedOp):
    """A process group: ranks first..last of the launched world. `rpeg.ranks @all 0..1`."""

    name = "rpeg.ranks"
    sym_name = prop_def(SymbolNameConstraint())
    first = prop_def(IntegerAttr)
    last = prop_def(IntegerAttr)
    traits = traits_def(SymbolOpInterface())

    @staticmethod
    def of(name: str, first: int, last: int) -> "RanksOp":
        """Ranks first..last, both included, under a name."""
        properties: dict[str, Attribute] = {
            "sym_name": StringAttr(name),
            "first": IntegerAttr(first, i64),
            "last": IntegerAttr(last, i64),
        }
        return RanksOp.create(properties=properties)

    @property
    def title(self) -> str:
        """Its name."""
        return symbol_name(self) or ""

    @property
    def ranks(self) -> range:
        """Its ranks."""
        return range(int(self.first.value.data), int(self.last.value.data) + 1)

    def rules(self) -> Iterator[Violation]:
        if not self.ranks or self.ranks[0] < 0:
            yield Violation(
                "empty-process-group", f"{self.ranks.start}..{self.ranks.stop - 1} holds no rank"
            )

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        name = parser.parse_symbol_name()
        first = parser.parse_integer(allow_boolean=False)
        parser.parse_keyword("to")
        last = parser.parse_integer(allow_boolean=False)
        return cls.create(
            properties={
                "sym_name": name,
                "first": IntegerAttr(first, i64),
                "last": IntegerAttr(last, i64),
            },
            attributes=parser.parse_optional_attr_dict(),
        )

    def print(self, printer: Printer) -> None:
        first, last = self.ranks.start, self.ranks.stop - 1
        printer.print_string(" ")
        printer.print_symbol_name(self.title)
        printer.print_string(f" {first} to {last}")
        if self.attributes:
            printer.print_string(" ")
            printer.print_attr_dict(self.attributes)


@irdl_op_definition
class PublishOp(RpegOp):
    """New weights, in the register that engines read: a latest-value register, not a queue.

    It is implicit in L0. The published weights are a state of their own, so it is never dead code.
    They arrive at its process group, whole on each process unless it has a layout.
    """

    name = "rpeg.publish"
    SCOPE: ClassVar[Scope] = "step"
    READS_NEXT: ClassVar[bool] = True
    weights = operand("model")
    published = gives("model")
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        return [self.weights.type]


@irdl_op_definition
class ReshardOp(RpegOp):
    """Weights on another process group, or in another layout: the boxes of each tensor that a
    process lacks come from one that has them. `rpeg.reshard %w attributes {pool = ..., par = ...}`
    """

    name = "rpeg.reshard"
    SCOPE: ClassVar[Scope] = "step"
    READS_OLD: ClassVar[bool] = True
    READS_NEXT: ClassVar[bool] = True
    weights = operand("model")
    resharded = gives("model")
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        return [self.weights.type]

    def rules(self) -> Iterator[Violation]:
        yield from _destination(self)
        if clause_of(self, "par") is None:
            yield Violation(
                "no-destination", "a reshard needs a layout: write par = #rpeg.record<par, {...}>"
            )


@irdl_op_definition
class TransferOp(RpegOp):
    """Trajectories or a field, from the processes that made them to another process group, each
    with its share. `rpeg.transfer %y attributes {pool = ...}`
    """

    name = "rpeg.transfer"
    moved = operand("traj | tok | seq")
    arrived = gives("traj | tok | seq")
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        return [self.moved.type]

    def rules(self) -> Iterator[Violation]:
        yield from _destination(self)


def _destination(op: RpegOp) -> Iterator[Violation]:
    if pool_of(op) is None:
        yield Violation(
            "no-destination", f"{op.word} says where to: write attributes {{pool = ...}}"
        )


def pool_of(op: Operation) -> str | None:
    """Name of the process group that a stage runs on, in L1."""
    held = op.attributes.get(POOL)
    return held.data if isinstance(held, StringAttr) else None


def clause_of(op: Operation, kind: str) -> RecordAttr | None:
    """How a stage runs, in L1: its clause of this kind."""
    held = op.attributes.get(kind)
    return held if isinstance(held, RecordAttr) else None


def model_of(op: Operation) -> str | None:
    """Name of the model that an operation works with."""
    types = (v.type for v in op.operands)
    return next((t.owner for t in types if isinstance(t, WeightsType)), None)


OPS: tuple[type[CheckedOp], ...] = (RanksOp, PublishOp, ReshardOp, TransferOp)
