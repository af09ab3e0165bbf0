"""The step: its block's arguments are the states at its start, its yield gives those at its end."""

from collections.abc import Iterator, Sequence
from typing import ClassVar, Self

from xdsl.dialects.builtin import IntegerAttr, StringAttr, i64
from xdsl.ir import Attribute, BlockArgument, Region
from xdsl.irdl import irdl_op_definition, prop_def, region_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import NoTerminator

from rpeg.ir.base import CheckedOp
from rpeg.ir.ops.regions import YieldOp
from rpeg.ir.rules import violations
from rpeg.ir.rules.violations import Violation
from rpeg.ir.text.naming import NAME
from rpeg.ir.types.buffer import BufferType
from rpeg.ir.types.values import CursorType, OptimizerType, StateType, WeightsType, is_unknown
from rpeg.ir.vocabulary.patterns import describe

Key = tuple[str, str]
"""What the versions of one state have in common: its kind and its declared name."""


def state_key(value_type: Attribute) -> Key | None:
    """The key of a state's type; None for other types."""
    match value_type:
        case WeightsType() | OptimizerType():
            return value_type.KIND, value_type.owner
        case CursorType() | StateType():
            return value_type.KIND, value_type.symbol
        case BufferType():
            return value_type.KIND, value_type.title
        case _:
            return None


@irdl_op_definition
class StepOp(CheckedOp):
    """One step of training, run `count` times.

    `rpeg.step i < 300 (%actor : !rpeg.weights<@actor, policy>, ...) { ... rpeg.yield %actor_1 }`
    """

    name = "rpeg.step"
    WITHIN: ClassVar[str] = "rpeg.pipeline"
    index = prop_def(StringAttr)
    count = prop_def(IntegerAttr)
    body = region_def("single_block")
    traits = traits_def(NoTerminator())  # its own rule says more than xDSL's

    @staticmethod
    def of(index: str, count: int, body: Region) -> "StepOp":
        """A step with this index name and count."""
        properties: dict[str, Attribute] = {
            "index": StringAttr(index),
            "count": IntegerAttr(count, i64),
        }
        return StepOp.create(properties=properties, regions=[body])

    @property
    def steps(self) -> int:
        """How many times it runs: the upper limit, and the horizon of LR schedules."""
        return int(self.count.value.data)

    @property
    def states(self) -> Sequence[BlockArgument]:
        """The states as the step starts."""
        return self.body.block.args

    @property
    def ending(self) -> YieldOp:
        """What it yields; only on a verified step."""
        last = self.body.block.last_op
        assert isinstance(last, YieldOp)
        return last

    def rules(self) -> Iterator[Violation]:
        if not NAME.fullmatch(self.index.data):
            text = f"the index of a step is a plain name, not {self.index}"
            yield Violation("malformed-operation", text)
        if self.steps < 1:
            yield Violation(
                "setting-range",
                f"a step runs at least once: {self.index.data} < 1 or more",
                violations.setting("count"),
            )
        yield from self._state_rules()
        last = self.body.block.last_op
        if not isinstance(last, YieldOp):
            yield Violation("missing-terminator", "a step ends with rpeg.yield")
            return
        yield from self._yield_rules(last)

    def _state_rules(self) -> Iterator[Violation]:
        for index, state in enumerate(self.states):
            key = state_key(state.type)
            if key is None:
                yield Violation(
                    "state-kind", f"state {index + 1} of a step is {describe(state.type)}"
                )
            elif isinstance(state.type, WeightsType) and state.type.lag != (0, 0):
                yield Violation(
                    "state-kind", f"state {index + 1} is not the version at the start of the step"
                )

    def _yield_rules(self, last: YieldOp) -> Iterator[Violation]:
        if any(is_unknown(v.type) for v in last.operands):
            return
        starts = [state_key(v.type) for v in self.states]
        ends = [state_key(v.type) for v in last.operands]
        uneven = list(_uneven(starts, ends))
        yield from uneven
        for index, (start, end) in enumerate(zip(self.states, last.operands, strict=False)):
            if not uneven and state_key(start.type) != state_key(end.type):
                text = f"state {index + 1} starts as {start.type} and ends as {end.type}"
                yield Violation("yielded-as-another", text)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        index = parser.parse_identifier()
        parser.parse_punctuation("<")
        count = parser.parse_integer(allow_boolean=False, allow_negative=False)
        arguments = parser.parse_comma_separated_list(
            parser.Delimiter.PAREN, lambda: _parse_argument(parser)
        )
        body = parser.parse_region(arguments)
        return cls.create(
            properties={"index": StringAttr(index), "count": IntegerAttr(count, i64)},
            attributes=parser.parse_optional_attr_dict(),
            regions=[body],
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.index.data} < {self.steps} (")
        printer.print_list(self.states, printer.print_block_argument)
        printer.print_string(") ")
        printer.print_region(self.body, print_entry_block_args=False)
        if self.attributes:
            printer.print_string(" ")
            printer.print_attr_dict(self.attributes)


def _uneven(starts: Sequence[Key | None], ends: Sequence[Key | None]) -> Iterator[Violation]:
    """States that a step does not yield as often as it has them."""
    for key in dict.fromkeys(k for k in (*starts, *ends) if k is not None):
        held, given = starts.count(key), ends.count(key)
        if given < held:
            text = (
                f"{_title(key)} is never yielded: a step ends with a version of each of its states"
            )
            yield Violation("not-yielded", f"{text}, the one it began with if nothing changes it")
        elif given > held > 0:
            text = f"{_title(key)} is yielded twice: each state of a step has one next version"
            yield Violation("yielded-twice", text)
        elif not held:
            text = (
                f"{_title(key)} is yielded and is not a state of the step: add it to the arguments"
            )
            yield Violation("yielded-as-another", text)


def _title(key: Key) -> str:
    kind, name = key
    what = {"opt": "the optimizer state of ", "cursor": "the position in ", "model": ""}
    return f"{what.get(kind, f'the {kind} ')}`{name}`"


def _parse_argument(parser: Parser) -> Parser.Argument:
    """`%name : type loc(...)`."""
    argument = parser.parse_argument()
    argument.location = parser.parse_optional_location()
    return argument


OPS: tuple[type[CheckedOp], ...] = (StepOp,)
