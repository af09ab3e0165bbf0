"""L3, programs: one a process group, instruction by instruction. Making text takes no decision.

rrt.program @grpo_all "all" 2 {
  %run = rrt.call "start" {pipeline = "grpo", ...}
  ...
  rrt.loop %run index %i {
    %q = rrt.call "batch" of %train {size = 32 : i64, ...}
    %y, %lp = rrt.call "generate" of %engine(%q) {n = 8 : i64, ...}
    rrt.every %run, %i steps 20 from 0 { ... }
  }
  rrt.call "finish" of %run
}
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Self

from xdsl.dialects.builtin import (
    ArrayAttr,
    IntegerAttr,
    StringAttr,
    SymbolNameConstraint,
    UnitAttr,
    i64,
)
from xdsl.ir import (
    Attribute,
    Block,
    Dialect,
    ParametrizedAttribute,
    Region,
    SSAValue,
    TypeAttribute,
)
from xdsl.irdl import (
    base,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    param_def,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, NoTerminator, SymbolOpInterface

from rpeg.ir.base import CheckedOp
from rpeg.ir.declared import symbol_name
from rpeg.ir.instructions import ANY, CONSTANTS, INSTRUCTIONS, Instruction
from rpeg.ir.rules import violations
from rpeg.ir.rules.program import (
    name_violations,
    pool_violations,
    pools_of,
    setting_violations,
    thing_violations,
)
from rpeg.ir.rules.program_rows import buffer_violations, lag_violations, row_violations
from rpeg.ir.rules.program_shape import layout_violations, order_violations
from rpeg.ir.rules.program_weights import (
    cache_violations,
    trainer_violations,
    weights_violations,
    window_violations,
)
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


CALL_RULES = (
    *(layout_violations, trainer_violations, weights_violations, cache_violations),
    *(row_violations, buffer_violations, lag_violations, window_violations),
)
"""What the program around an instruction asks of it."""


@irdl_op_definition
class CallOp(CheckedOp):
    """One instruction: a call of the runtime, as a function or as a method of a value.

    The last operands may be keywords: `keywords` names them.
    """

    name = "rrt.call"
    INSTRUCTION: ClassVar[str] = "instruction"
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
        if len(self.operands) < len(self.keywords) + (self.method is not None):
            text = "fewer values than its receiver and its keywords need"
            yield Violation("call-operands", f"{self.callee.data} has {text}")
            return
        row = self.instruction
        if row is None:
            yield Violation("unknown-instruction", self._unknown())
            return
        yield from setting_violations(self, row)
        yield from thing_violations(row, [class_of(v) for v in self.things])
        for rule in CALL_RULES:
            yield from rule(self)
        found = [class_of(r) for r in self.results]
        gives = _result_classes(row, len(self.things), found)
        if found != gives:
            wanted = ", ".join(gives) or "nothing"
            yield Violation(
                "call-results", f"{row.name} gives {wanted}, not {', '.join(found) or 'nothing'}"
            )

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
                f"`{name}` is no constant of the runtime{hint(name, CONSTANTS)}",
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


@irdl_op_definition
class LoopOp(CheckedOp):
    """The steps of a run: `rrt.loop %run index %i { ... }`; %i is the number of the step."""

    name = "rrt.loop"
    run = operand_def(ObjectType)
    index = prop_def(StringAttr)
    body = region_def("single_block")
    traits = traits_def(NoTerminator())

    @staticmethod
    def of(run: SSAValue, index: str) -> "LoopOp":
        """The loop over the steps of a run, with an empty body."""
        block = Block(arg_types=[ObjectType.of("Step")])
        block.args[0].name_hint = index
        return LoopOp.create(
            operands=[run], properties={"index": StringAttr(index)}, regions=[Region(block)]
        )

    @property
    def step(self) -> SSAValue:
        """The number of the step."""
        return self.body.block.args[0]

    def rules(self) -> Iterator[Violation]:
        if [class_of(a) for a in self.body.block.args] != ["Step"]:
            yield Violation("loop-form", "the body of rrt.loop has one argument, the step's number")
        if class_of(self.run) not in ("Run", ANY):
            text = f"rrt.loop takes a Run, not a {class_of(self.run)}: write rrt.loop %run"
            yield Violation("call-operands", text, violations.operand(0))

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        run = parse_value(parser)
        parser.parse_keyword("index")
        argument = parser.parse_argument(expect_type=False)
        resolved = argument.resolve(ObjectType.of("Step"))
        region = parser.parse_region([resolved])
        index = argument.name.text[1:]
        return cls.create(operands=[run], properties={"index": StringAttr(index)}, regions=[region])

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.run)
        printer.print_string(" index ")
        printer.print_ssa_value(self.step)
        printer.print_string(" ")
        printer.print_region(self.body, print_entry_block_args=False, print_empty_block=False)


@irdl_op_definition
class EveryOp(CheckedOp):
    """Instructions of some steps only: `rrt.every %run, %i steps 20 from 0 { ... }`."""

    name = "rrt.every"
    run = operand_def(ObjectType.of("Run"))
    step = operand_def(ObjectType.of("Step"))
    steps = prop_def(IntegerAttr.constr(i64))
    first = prop_def(IntegerAttr.constr(i64))
    body = region_def("single_block")
    traits = traits_def(NoTerminator())
    assembly_format = "$run `,` $step `steps` $steps `from` $first attr-dict-with-keyword $body"

    @staticmethod
    def of(run: SSAValue, step: SSAValue, steps: int, first: int) -> "EveryOp":
        """Every so many steps, from step `first` on, with an empty body."""
        return EveryOp.create(
            operands=[run, step],
            properties={"steps": IntegerAttr(steps, i64), "first": IntegerAttr(first, i64)},
            regions=[Region(Block())],
        )

    def rules(self) -> Iterator[Violation]:
        if int(self.steps.value.data) < 1:
            yield Violation(
                "setting-range", "every: expected at least 1 step", violations.setting("steps")
            )


@irdl_op_definition
class RoundsOp(CheckedOp):
    """Instructions of each round of a collect: `rrt.rounds %y_rounds { ... }`."""

    name = "rrt.rounds"
    collect = operand_def(ObjectType.of("Collect"))
    body = region_def("single_block")
    traits = traits_def(NoTerminator())
    assembly_format = "$collect attr-dict-with-keyword $body"

    @staticmethod
    def of(collect: SSAValue) -> "RoundsOp":
        """The rounds of a collect, with an empty body."""
        return RoundsOp.create(operands=[collect], regions=[Region(Block())])


@irdl_op_definition
class AheadOp(CheckedOp):
    """Instructions that fill a buffer ahead of a step: `rrt.ahead %y_buffer, %i { ... }`.

    They run once for each batch that has to be there before the step, and put one each time; for
    each batch of prompts that may start, where samples are in flight from step to step.
    """

    name = "rrt.ahead"
    HOLDERS: ClassVar[tuple[str, ...]] = ("TrajectoryBuffer", "Collect", "Rollouts")
    """What keeps batches until their step."""
    buffer = operand_def(ObjectType)
    step = operand_def(ObjectType)
    body = region_def("single_block")
    traits = traits_def(NoTerminator())

    @staticmethod
    def of(buffer: SSAValue, step: SSAValue) -> "AheadOp":
        """What fills a buffer before a step, with an empty body."""
        return AheadOp.create(operands=[buffer, step], regions=[Region(Block())])

    def rules(self) -> Iterator[Violation]:
        wanted = {0: self.HOLDERS, 1: ("Step",)}
        for number, classes in wanted.items():
            found = class_of(self.operands[number])
            if found not in (*classes, ANY):
                text = f"rrt.ahead takes a {' or a '.join(classes)}, not a {found}"
                yield Violation("call-operands", text, violations.operand(number))

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        buffer = parse_value(parser)
        parser.parse_punctuation(",")
        step = parse_value(parser)
        return cls.create(operands=[buffer, step], regions=[parser.parse_region()])

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_list(self.operands, printer.print_ssa_value)
        printer.print_string(" ")
        printer.print_region(self.body, print_empty_block=False)


@irdl_op_definition
class ProgramOp(CheckedOp):
    """The program of one process group."""

    name = "rrt.program"
    sym_name = prop_def(SymbolNameConstraint())
    pool = prop_def(StringAttr)
    processes = prop_def(IntegerAttr.constr(i64))
    body = region_def("single_block")
    traits = traits_def(SymbolOpInterface(), IsolatedFromAbove(), NoTerminator())
    assembly_format = "$sym_name $pool $processes attr-dict-with-keyword $body"

    @staticmethod
    def of(pipeline: str, pool: str, processes: int) -> "ProgramOp":
        """An empty program of a pipeline's process group."""
        properties: dict[str, Attribute] = {
            "sym_name": StringAttr(f"{pipeline}_{pool}"),
            "pool": StringAttr(pool),
            "processes": IntegerAttr(processes, i64),
        }
        return ProgramOp.create(properties=properties, regions=[Region(Block())])

    @property
    def title(self) -> str:
        """Its name: that of the pipeline and of the process group."""
        return symbol_name(self) or ""

    @property
    def start(self) -> CallOp | None:
        """The instruction that joins the world and opens the run; the first one."""
        first = self.body.block.first_op
        return first if isinstance(first, CallOp) and first.callee.data == "start" else None

    @property
    def ranks(self) -> range:
        """Its processes, by their numbers in the launch."""
        table = self.start.settings.get("pools") if self.start is not None else None
        bounds = pools_of(table).get(self.pool.data) if table is not None else None
        return range(*bounds) if bounds is not None else range(self.process_count)

    @property
    def process_count(self) -> int:
        """Processes of the group."""
        return int(self.processes.value.data)

    def rules(self) -> Iterator[Violation]:
        loops = [op for op in self.body.block.ops if isinstance(op, LoopOp)]
        if len(loops) != 1:
            yield Violation("one-loop", f"a program has one rrt.loop; this one has {len(loops)}")
        if self.start is None:
            yield Violation("start-first", 'a program begins with rrt.call "start"')
            return
        yield from name_violations(self)
        yield from pool_violations(self, self.start)
        if len(loops) == 1:
            yield from order_violations(self, loops[0])


Rrt = Dialect(
    "rrt", [ProgramOp, LoopOp, EveryOp, RoundsOp, AheadOp, CallOp, ConstantOp], [ObjectType]
)
