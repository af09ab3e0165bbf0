"""What the types of a step have in common: the words that operand patterns match, and the text form
of their parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import IntAttr, StringAttr, SymbolRefAttr
from xdsl.ir import Attribute, ParametrizedAttribute, TypeAttribute
from xdsl.parser import AttrParser
from xdsl.printer import Printer


def symbol_text(symbol: SymbolRefAttr) -> str:
    """The name that a reference says; references here have one part."""
    return symbol.root_reference.data


def parse_symbol(parser: AttrParser) -> SymbolRefAttr:
    """`@name`."""
    return SymbolRefAttr(parser.parse_symbol_name())


def parse_lag(parser: AttrParser) -> tuple[IntAttr, IntAttr]:
    """`, lag = [0, 2]` where present, else the current version."""
    if parser.parse_optional_punctuation(",") is None:
        return IntAttr(0), IntAttr(0)
    parser.parse_keyword("lag")
    return parse_range(parser)


def parse_range(parser: AttrParser) -> tuple[IntAttr, IntAttr]:
    """`= [0, 2]`."""
    parser.parse_punctuation("=")
    parser.parse_punctuation("[")
    low = parser.parse_integer(allow_boolean=False)
    parser.parse_punctuation(",")
    high = parser.parse_integer(allow_boolean=False)
    parser.parse_punctuation("]")
    return IntAttr(low), IntAttr(high)


def print_lag(printer: Printer, low: IntAttr, high: IntAttr) -> None:
    """What `parse_lag` reads."""
    if (low.data, high.data) != (0, 0):
        printer.print_string(f", lag = [{low.data}, {high.data}]")


class FlowType(ParametrizedAttribute, TypeAttribute):
    """A type of the step; `kind` and `what` are the two words that operand patterns match."""

    KIND: ClassVar[str] = ""

    @property
    def what(self) -> str:
        """The second word of a pattern: a role, a field's meaning; empty if there is none."""
        return ""


def parse_scope(parser: AttrParser) -> StringAttr:
    """`, group` or `, batch` where present, else sample."""
    if parser.parse_optional_punctuation(",") is None:
        return StringAttr("sample")
    return StringAttr(parser.parse_identifier())


class ScopedType(FlowType):
    """A type with the smallest unit on which its value can be computed: sample, group or batch."""

    @property
    def scope(self) -> str:
        """sample, group or batch: the last parameter."""
        unit = self.parameters[-1]
        assert isinstance(unit, StringAttr)
        return unit.data

    def over(self, scope: str) -> ScopedType:
        """The same over a larger unit."""
        return type(self).new([*self.parameters[:-1], StringAttr(scope)])

    def print_scope(self, printer: Printer) -> None:
        """`, group` or `, batch`; nothing for sample."""
        if self.scope != "sample":
            printer.print_string(f", {self.scope}")


class DeclaredType(FlowType):
    """A type of what is declared, by its name and a word about it: `<@name, word>`."""

    def __init__(self, symbol: str | SymbolRefAttr, word: str | StringAttr) -> None:
        super().__init__(symbol, word)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            symbol = parse_symbol(parser)
            parser.parse_punctuation(",")
            return (symbol, StringAttr(parser.parse_identifier()))

    def print_parameters(self, printer: Printer) -> None:
        symbol, word = self.parameters
        assert isinstance(symbol, SymbolRefAttr) and isinstance(word, StringAttr)
        with printer.in_angle_brackets():
            printer.print_symbol_name(symbol_text(symbol))
            printer.print_string(f", {word.data}")

    @property
    def symbol(self) -> str:
        """Name of the declaration."""
        name = self.parameters[0]
        assert isinstance(name, SymbolRefAttr)
        return symbol_text(name)

    @property
    def what(self) -> str:
        word = self.parameters[1]
        assert isinstance(word, StringAttr)
        return word.data
