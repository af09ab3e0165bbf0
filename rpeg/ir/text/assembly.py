"""The custom text form: values are defined above their uses, settings stand in `{...}`.

What passes note on an operation follows as `attributes {...}`: a misspelt setting is not a note.
"""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.ir import Attribute, SSAValue
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer

from rpeg.ir.rules.violations import hint
from rpeg.ir.vocabulary.settings import Setting

Table = Mapping[str, Setting]
_EMPTY: Table = {}


def parse_value(parser: Parser) -> SSAValue:
    """`%name` or `%name#1`, a value that is already defined."""
    return _defined(parser, parser.parse_unresolved_operand("expected a value such as %y"))


def parse_values(parser: Parser) -> list[SSAValue]:
    """`%a, %b`; none where the next token is no value."""
    named = parser.parse_optional_undelimited_comma_separated_list(
        parser.parse_optional_unresolved_operand, parser.parse_unresolved_operand
    )
    return [_defined(parser, operand) for operand in named or ()]


def parse_settings(
    parser: Parser, table: Table = _EMPTY
) -> tuple[dict[str, Attribute], dict[str, Attribute]]:
    """`{name = value, ...} attributes {name = value, ...}`: settings, and what passes noted.

    Settings of the table that are not written have their defaults.
    """
    given = parser.parse_optional_attr_dict()
    notes = parser.parse_optional_attr_dict_with_keyword()
    return with_defaults(table, given), dict(notes.data) if notes is not None else {}


def with_defaults(table: Table, given: Mapping[str, Attribute]) -> dict[str, Attribute]:
    """Settings with defaults filled in, in the order of the table."""
    held = {name: given.get(name, setting.default) for name, setting in table.items()}
    known = {name: value for name, value in held.items() if value is not None}
    return {**known, **{name: value for name, value in given.items() if name not in table}}


def print_settings(
    printer: Printer,
    settings: Mapping[str, Attribute],
    notes: Mapping[str, Attribute],
    table: Table = _EMPTY,
    always: bool = False,
) -> None:
    """What `parse_settings` reads; `always` prints empty settings too, where a `{` follows."""
    shown = {n: v for n, v in settings.items() if n not in table or table[n].default != v}
    if shown or always:
        printer.print_string(" ")
        printer.print_attr_dict(shown)
    if notes:
        printer.print_string(" attributes ")
        printer.print_attr_dict(dict(notes))


def _defined(parser: Parser, operand: UnresolvedOperand) -> SSAValue:
    name = operand.operand_name
    values = parser.ssa_values.get(name)
    if values is None:
        near = hint(name, parser.ssa_values)
        parser.raise_error(f"%{name} is not defined above this use{near}", operand.span)
    if operand.index >= len(values):
        parser.raise_error(f"%{name} has {len(values)} values", operand.span)
    return values[operand.index]
