"""From MLIR text to IR, with the place of every operation, operand, result and setting.

xDSL's parser leaves locations out; like it, this one stops at the first syntax error.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, UnknownLoc
from xdsl.ir import Attribute, AttributeInvT, Block, Operation, SSAValue, TypeAttribute
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.parser.generic_parser import ParserState
from xdsl.utils.exceptions import ParseError, VerifyException
from xdsl.utils.lexer import Input, Span
from xdsl.utils.mlir_lexer import MLIRTokenKind

from rpeg.ir.registry import context
from rpeg.ir.rules import violations
from rpeg.ir.rules.violations import Anchor, hint
from rpeg.ir.text.diagnostics import Diagnostic, Position
from rpeg.ir.text.lexer import Lexer
from rpeg.ir.text.naming import forget_empty_names
from rpeg.ir.text.sources import Sources

INTEGER_TYPE = re.compile(r"[su]?i0*(\d+)")
WIDEST = (1 << 24) - 1
"""Bits of an integer type, as in MLIR."""


def parse_module(
    text: str, filename: str, ctx: Context | None = None
) -> tuple[ModuleOp | None, Sources, list[Diagnostic]]:
    """The module of a text, where its parts stand, and what is wrong with its syntax.

    There is a module exactly if there are no messages. Rules about meaning are `diagnose`'s.
    """
    lines = Lines(text)
    sources = Sources(filename, place=lines.place)
    try:
        parser = LocatingParser(ctx or context(), text, sources, lines)
        return parser.parse_module(), sources, []
    except ParseError as error:
        at, message = lines.place(error.span.start), _sentence(error.msg)
    except RecursionError:
        at, message = Position(1, 1), "the text is nested too deeply"
    return None, sources, [Diagnostic(at, message, file=filename)]


class Lines:
    """Where the lines of a text start: positions in logarithmic time, where xDSL's take linear."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(i + 1 for i, character in enumerate(text) if character == "\n")]

    def place(self, offset: int) -> Position:
        """The position of an offset in the text."""
        line = bisect_right(self._starts, offset)
        return Position(line, offset - self._starts[line - 1] + 1)


@dataclass
class _Parts:
    """What the parser has seen of an operation."""

    operands: int = 0
    results: int = 0
    path: list[str] = field(default_factory=list[str])
    """Names of the settings that the parser is inside of."""
    offsets: dict[Anchor, int] = field(default_factory=dict[Anchor, int])


class LocatingParser(Parser):
    """xDSL's parser, that also records where things stand."""

    def __init__(self, ctx: Context, text: str, sources: Sources, lines: Lines) -> None:
        super().__init__(ctx, "", sources.file)
        self._parser_state = ParserState(Lexer(Input(text, sources.file)))
        self._sources = sources
        self._lines = lines
        self._open = [_Parts()]
        self._first_uses: dict[str, Span] = {}

    def parse_module(self, allow_implicit_module: bool = True) -> ModuleOp:
        try:
            return super().parse_module(allow_implicit_module)
        except ParseError:
            at_end = self._current_token.kind == MLIRTokenKind.EOF
            undefined = next(iter(self.forward_ssa_references), None)
            if undefined is None or not at_end:
                raise
            self.raise_error(f"%{undefined} is never defined", self._first_uses[undefined])

    # ---- places

    def _place(self, span: Span) -> Position:
        return self._lines.place(span.start)

    def parse_operation(self) -> Operation:
        start = self._current_token.span
        self._open.append(_Parts())
        try:
            op = super().parse_operation()
        except VerifyException as error:
            self.raise_error(str(error), start)
        parts = self._open.pop()
        if isinstance(op.location, UnknownLoc):
            op.location = self._sources.location(self._place(start))
            self._sources.offsets[op] = parts.offsets
        return op

    def _parse_block(self) -> Block:
        label = self._current_token
        if label.kind == MLIRTokenKind.CARET_IDENT and not Block.is_valid_name(label.text[1:]):
            self.raise_error("the label of a block starts with a letter", label.span)
        return super()._parse_block()

    def parse_optional_unresolved_operand(self) -> UnresolvedOperand | None:
        operand = super().parse_optional_unresolved_operand()
        if operand is not None:
            parts = self._open[-1]
            parts.offsets[violations.operand(parts.operands)] = operand.span.start
            parts.operands += 1
        return operand

    def resolve_operand(
        self, operand: UnresolvedOperand, type: AttributeInvT
    ) -> SSAValue[AttributeInvT]:
        self._first_uses.setdefault(operand.operand_name, operand.span)
        return super().resolve_operand(operand, type)

    def _parse_op_result(self) -> tuple[Span, int]:
        span, size = super()._parse_op_result()
        parts = self._open[-1]
        for index in range(parts.results, parts.results + size):
            parts.offsets[violations.result(index)] = span.start
        parts.results += size
        return span, size

    def _register_ssa_definition(self, name: str, values: Sequence[SSAValue], span: Span) -> None:
        super()._register_ssa_definition(name, values, span)
        if name.startswith("_"):
            forget_empty_names(values)

    def _parse_attribute_entry(self) -> tuple[str, Attribute]:
        parts, key = self._open[-1], self._current_token.span
        parts.path.append(key.text.strip('"'))
        parts.offsets[violations.setting(".".join(parts.path))] = key.start
        entry = super()._parse_attribute_entry()
        parts.path.pop()
        return entry

    # ---- messages

    def parse_optional_attribute(self) -> Attribute | None:
        start = self._current_token.span
        try:
            return super().parse_optional_attribute()
        except (VerifyException, ParseError) as error:
            self._fail_at(start, error)

    def parse_optional_type(self) -> TypeAttribute | None:
        start = self._current_token.span
        try:
            return super().parse_optional_type()
        except (VerifyException, ParseError) as error:
            self._fail_at(start, error)

    def _parse_optional_integer_or_float_type(self) -> TypeAttribute | None:
        """xDSL computes the range of a type of any width, which may take all memory."""
        token = self._current_token
        width = INTEGER_TYPE.fullmatch(token.text)
        if width and (len(width[1]) > len(str(WIDEST)) or int(width[1]) > WIDEST):
            self.raise_error(f"integer types have at most {WIDEST} bits", token.span)
        return super()._parse_optional_integer_or_float_type()

    def _fail_at(self, start: Span, error: VerifyException | ParseError) -> NoReturn:
        """Raises the error at the start of an attribute, where xDSL names the token behind it, or
        no place at all.
        """
        if isinstance(error, VerifyException):
            self.raise_error(str(error), start)
        if error.msg.endswith("is not registered"):
            self.raise_error(error.msg, start)
        raise error

    def _get_op_by_name(self, name: str) -> type[Operation]:
        found = self.ctx.get_optional_op(name, dialect_stack=self._parser_state.dialect_stack)
        if found is None:
            start = self.lexer.input.content.rfind(name, 0, self._current_token.span.start)
            near = hint(name, [op.name for op in self.ctx.loaded_ops])
            self.raise_error(f"`{name}` is not an operation{near}", start)
        return found


_SENTENCES = {
    "Could not parse entire input!": "expected an operation",
    " in block definition": "expected an operation or `}`",
    "End of file reached before closing string literal.": "the string does not end on its line",
}


def _sentence(message: str) -> str:
    """xDSL's message in the style of ours: no capital, no full stop."""
    if message in _SENTENCES:
        return _SENTENCES[message]
    text = f"unexpected text{message}" if message.startswith(" ") else message
    return (text[:1].lower() + text[1:]).rstrip(".! ")
