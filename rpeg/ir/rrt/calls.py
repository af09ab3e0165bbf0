"""Instructions of L3: the calls that a program makes of the runtime, and the values they give.

%y, %lp = rrt.call "generate" of %engine(%q) {n = 8 : i64, ...}
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Self

from xdsl.dialects.builtin import ArrayAttr, StringAttr, UnitAttr
from xdsl.ir import Attribute, Operation, ParametrizedAttribute, SSAValue, TypeAttribute
from xdsl.irdl import (
    base,
    irdl_attr_definition,
    irdl_op_definition,
    opt_prop_def,
    param_def,
    prop_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer

from rpeg.ir.base import CheckedOp
from rpeg.ir.rrt.instructions import ANY, CONSTANTS, INSTRUCTIONS, Instruction
from rpeg.ir.rules.instructions import argument_violations, thing_violations
from rpeg.ir.rules.violations import Violation, hint
from rpeg.ir.text.assembly import parse_value


@irdl_attr_definition
class ObjectType(ParametrizedAttribute, TypeAttribute):
    """A value of a program, by the runtime's class for it: `!rrt.object<Trainer>`."""

    name = "rrt.object"
    cls: StringAttr = param_def(base(StringAttr))

    @staticmethod
    def of(name: str) -> "ObjectType":
        """The type of this class's values."""
        return ObjectType(StringAttr(name))

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            return (StringAttr(parser.parse_identifier()),)

    def print_parameters(self, printer: Printer) -> None:
        printer.print_string(f"<{self.cls.data}>")


def class_of(value: SSAValue) -> str:
    """The runtime's class of a program's value."""
    return value.type.cls.data if isinstance(value.type, ObjectType) else str(value.type)


@irdl_op_definition
class CallOp(CheckedOp):
    """One instruction: a call of the runtime, as a function or as a method of a value.

    The last operands may be keywords: `keywords` names them.
    """

    name = "rrt.call"
    callee = prop_def(StringAttr)
    method = opt_prop_def(UnitAttr)
    keywords = prop_def(ArrayAttr[StringAttr])
    arguments = var_operand_def(ObjectType)
    returned = var_result_def(ObjectType)

    @classmethod
    def of(
        cls,
        callee: str,
        things: Sequence[SSAValue] = (),
        settings: Mapping[str, Attribute] | None = None,
        keywords: Mapping[str, SSAValue] | None = None,
        receiver: SSAValue | None = None,
        gives: Sequence[str] = (),
    ) -> Self:
        """A call; result classes come from the instruction, those of an open one are given."""
        named = dict(keywords or {})
        owner = class_of(receiver) if receiver is not None else ""
        row = INSTRUCTIONS.get((owner, callee))
        properties: dict[str, Attribute] = {
            "callee": StringAttr(callee),
            "keywords": ArrayAttr([StringAttr(k) for k in named]),
            **({"method": UnitAttr()} if receiver is not None else {}),
        }
        return cls.create(
            operands=[*([receiver] if receiver is not None else []), *things, *named.values()],
            properties=properties,
            attributes=dict(settings or {}),
            result_types=[ObjectType.of(c) for c in _result_classes(row, len(things), gives)],
        )

    @property
    def receiver(self) -> SSAValue | None:
        """The value it is a method of."""
        return self.operands[0] if self.method is not None and self.operands else None

    @property
    def things(self) -> Sequence[SSAValue]:
        """The positional values, without the receiver."""
        start = 1 if self.method is not None else 0
        return list(self.operands)[start : len(self.operands) - len(self.keywords)]

    @property
    def named(self) -> dict[str, SSAValue]:
        """The values given by keyword."""
        count = len(self.keywords)
        values = list(self.operands)[len(self.operands) - count :] if count else []
        return {k.data: v for k, v in zip(self.keywords, values, strict=False)}

    @property
    def settings(self) -> Mapping[str, Attribute]:
        """The settings."""
        return self.attributes

    @property
    def instruction(self) -> Instruction | None:
        """What it calls."""
        owner = class_of(self.receiver) if self.receiver is not None else ""
        return INSTRUCTIONS.get((owner, self.callee.data))

    # ---- checks

    def rules(self) -> Iterator[Violation]:
        if not self._operands_suffice():
            text = "fewer values than its receiver and its keywords need"
            yield Violation("call-operands", f"{self.callee.data} has {text}")
            return
        row = self.instruction
        if row is None:
            yield Violation("unknown-instruction", self._unknown())
            return
        yield from argument_violations(row, self.settings, self.named)
        yield from thing_violations(row, [class_of(v) for v in self.things])
        found = [class_of(r) for r in self.results]
        gives = _result_classes(row, len(self.things), found)
        if found != gives:
            wanted = ", ".join(gives) or "nothing"
            yield Violation(
                "call-results", f"{row.name} gives {wanted}, not {', '.join(found) or 'nothing'}"
            )

    @property
    def known(self) -> bool:
        """Whether it calls something that there is, with its receiver and its keywords."""
        return self._operands_suffice() and self.instruction is not None

    def _operands_suffice(self) -> bool:
        return len(self.operands) >= len(self.keywords) + (self.method is not None)

    def _unknown(self) -> str:
        name = self.callee.data
        owner = class_of(self.receiver) if self.receiver is not None else ""
        near = hint(name, [n for r, n in INSTRUCTIONS if r == owner])
        whose = f"an instruction of {owner}" if owner else "an instruction"
        return f"`{name}` is not {whose}{near}"

    # ---- text form

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        start = parser.pos
        callee = parser.parse_str_literal()
        end = parser.pos
        receiver = parse_value(parser) if parser.parse_optional_keyword("of") else None
        things: list[SSAValue] = []
        named: dict[str, SSAValue] = {}

        def argument() -> None:
            word = parser.parse_optional_identifier()
            if word is None:
                things.append(parse_value(parser))
                return
            parser.parse_punctuation("=")
            named[word] = parse_value(parser)

        parser.parse_optional_comma_separated_list(parser.Delimiter.PAREN, argument)
        settings = parser.parse_optional_attr_dict()
        gives: list[str] = []
        if parser.parse_optional_keyword("gives"):
            gives = parser.parse_comma_separated_list(
                parser.Delimiter.NONE, parser.parse_identifier
            )
        op = cls.of(callee, things, settings, named, receiver, gives)
        if op.instruction is None:
            parser.raise_error(op._unknown(), start, end)
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_string_literal(self.callee.data)
        if self.receiver is not None:
            printer.print_string(" of ")
            printer.print_ssa_value(self.receiver)
        if self.things or self.named:
            printer.print_string("(")
            printer.print_list(self.things, printer.print_ssa_value)
            for k, (word, value) in enumerate(self.named.items()):
                printer.print_string(f"{', ' if k or self.things else ''}{word} = ")
                printer.print_ssa_value(value)
            printer.print_string(")")
        if self.settings:
            printer.print_string(" ")
            printer.print_attr_dict(self.settings)
        if self.instruction is not None and self.instruction.open:
            printer.print_string(f" gives {', '.join(map(class_of, self.results))}")


def _result_classes(row: Instruction | None, things: int, given: Sequence[str]) -> list[str]:
    """Classes of what a call of so many positional values returns."""
    if row is None:
        return []
    return [*given] if row.open else row.gives(things)


@irdl_op_definition
class ConstantOp(CheckedOp):
    """A name of the runtime as a value: `%old = rrt.constant "ON_POLICY"`."""

    name = "rrt.constant"
    symbol = prop_def(StringAttr)
    constant = var_result_def(ObjectType)

    @classmethod
    def of(cls, symbol: str) -> Self:
        """The constant of this name."""
        return cls.create(
            properties={"symbol": StringAttr(symbol)},
            result_types=[ObjectType.of(CONSTANTS.get(symbol, ANY))],
        )

    def rules(self) -> Iterator[Violation]:
        if self.symbol.data not in CONSTANTS:
            name = self.symbol.data
            yield Violation(
                "unknown-instruction",
                f"`{name}` is not a constant of the runtime{hint(name, CONSTANTS)}",
            )

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        op = cls.of(parser.parse_str_literal())
        op.attributes.update(parser.parse_optional_attr_dict())
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_string_literal(self.symbol.data)
        if self.attributes:
            printer.print_string(" ")
            printer.print_attr_dict(self.attributes)


def calls(op: Operation) -> Iterator[CallOp]:
    """The instructions inside of an operation, in order."""
    yield from (inner for inner in op.walk() if isinstance(inner, CallOp))
