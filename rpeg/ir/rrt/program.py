"""L3, programs: one per process group, instruction by instruction. Emitting text from them involves
no decisions.

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

from collections.abc import Iterator
from typing import ClassVar, Self

from xdsl.dialects.builtin import IntegerAttr, StringAttr, SymbolNameConstraint, i64
from xdsl.ir import Attribute, Block, Dialect, Region, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, region_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import NoTerminator, SymbolOpInterface

from rpeg.ir.base import CheckedOp
from rpeg.ir.declared import symbol_name
from rpeg.ir.isolated import Isolated
from rpeg.ir.rrt.calls import CallOp, ConstantOp, ObjectType, class_of
from rpeg.ir.rrt.instructions import ANY, pools_of
from rpeg.ir.rules import violations
from rpeg.ir.rules.violations import Violation
from rpeg.ir.text.assembly import parse_value


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
    traits = traits_def(SymbolOpInterface(), Isolated(), NoTerminator())
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
    def loops(self) -> list[LoopOp]:
        """Its loops over steps; one, in a verified program."""
        return [op for op in self.body.block.ops if isinstance(op, LoopOp)]

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
        count = len(self.loops)
        if count != 1:
            yield Violation("one-loop", f"a program has one rrt.loop; this one has {count}")
        if self.start is None:
            yield Violation("start-first", 'a program begins with rrt.call "start"')


Rrt = Dialect(
    "rrt", [ProgramOp, LoopOp, EveryOp, RoundsOp, AheadOp, CallOp, ConstantOp], [ObjectType]
)
