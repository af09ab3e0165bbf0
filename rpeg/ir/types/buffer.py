"""The type of a bounded queue of groups: what is in it, how many, for how long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import ArrayAttr, IntAttr, StringAttr, SymbolRefAttr
from xdsl.ir import Attribute
from xdsl.irdl import base, irdl_attr_definition, param_def
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from rpeg.ir.types.flow import FlowType, symbol_text
from rpeg.ir.types.values import ResponseFieldType, TokenFieldType, TrajectoriesType

ORDERS = ("fifo", "lifo")
"""Which group leaves a buffer first: the oldest, or the newest."""


@irdl_attr_definition
class BufferType(FlowType):
    """A bounded queue of groups: `!rpeg.buffer<@queue, capacity = 64, age = 2, fifo, [ROWS]>`.

    A group is a prompt with all of its completions. ROWS are the types of what a group consists of,
    for one prompt: trajectories first, then their fields.
    """

    name = "rpeg.buffer"
    KIND: ClassVar[str] = "buffer"
    identity: SymbolRefAttr = param_def(base(SymbolRefAttr))
    capacity: IntAttr = param_def()
    age: IntAttr = param_def()
    order: StringAttr = param_def(base(StringAttr))
    rows: ArrayAttr[Attribute] = param_def()

    @property
    def title(self) -> str:
        """Its name: a state's versions are those of one name."""
        return symbol_text(self.identity)

    @property
    def groups(self) -> int:
        """How many groups it holds at most."""
        return self.capacity.data

    @property
    def steps(self) -> int:
        """How many steps a group may wait in it; older ones are dropped."""
        return self.age.data

    def popped(self, groups: int) -> Sequence[Attribute]:
        """Types of `groups` groups that leave it: as old as they came, and up to `age` more."""
        first, *fields = self.rows
        assert isinstance(first, TrajectoriesType)
        return [first.aged(self.steps).resized(groups), *fields]

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            identity = SymbolRefAttr(parser.parse_symbol_name())
            capacity = _parse_number(parser, "capacity")
            age = _parse_number(parser, "age")
            parser.parse_punctuation(",")
            order = StringAttr(parser.parse_identifier())
            parser.parse_punctuation(",")
            rows = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_type)
            return (identity, capacity, age, order, ArrayAttr(rows))

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(f"@{self.title}, capacity = {self.groups}, age = {self.steps}, ")
            printer.print_string(f"{self.order.data}, [")
            printer.print_list(self.rows, printer.print_attribute)
            printer.print_string("]")

    def verify(self) -> None:
        if self.order.data not in ORDERS:
            raise VerifyException(f"a buffer's order is {' or '.join(ORDERS)}")
        first, *fields = self.rows or [None]
        if not (isinstance(first, TrajectoriesType) and first.prompts.data == 1):
            raise VerifyException("a buffer's first row is the trajectories of one prompt")
        if not all(isinstance(row, TokenFieldType | ResponseFieldType) for row in fields):
            raise VerifyException("behind a buffer's trajectories stand their fields")


def _parse_number(parser: AttrParser, name: str) -> IntAttr:
    """`, name = 3`."""
    parser.parse_punctuation(",")
    parser.parse_keyword(name)
    parser.parse_punctuation("=")
    return IntAttr(parser.parse_integer(allow_boolean=False, allow_negative=False))
