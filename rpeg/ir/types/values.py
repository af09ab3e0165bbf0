"""Types of the `rpeg` dialect: what flows through a step, with the facts that rules are about.

A version of weights is a range of *lags*: how many steps before this one's start they were made.
`0..0` is the version as step i starts (`actor@i`), `0..2` the window `actor@[i-2..i]`, `-1..-1` the
version that this step makes (`actor@i+1`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import IntAttr, StringAttr, SymbolRefAttr
from xdsl.ir import Attribute
from xdsl.irdl import irdl_attr_definition, param_def
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from rpeg.ir.rules.staleness import WORDS
from rpeg.ir.types.flow import (
    DeclaredType,
    FlowType,
    ScopedType,
    parse_lag,
    parse_range,
    parse_scope,
    parse_symbol,
    print_lag,
    symbol_text,
)

NEXT = -1
"""The lag of a version that the step itself makes."""


@irdl_attr_definition
class UnknownType(FlowType):
    """The type of a value whose definition already has an error: no rule is applied to it."""

    name = "rpeg.unknown"


@irdl_attr_definition
class WeightsType(FlowType):
    """Weights of a model at a range of versions: `!rpeg.weights<@actor, policy, lag = [0, 2]>`."""

    name = "rpeg.weights"
    KIND: ClassVar[str] = "model"
    model: SymbolRefAttr = param_def(converter=SymbolRefAttr.get)
    role: StringAttr = param_def(converter=StringAttr.get)
    low: IntAttr = param_def(converter=IntAttr.get)
    high: IntAttr = param_def(converter=IntAttr.get)

    def __init__(
        self,
        model: str | SymbolRefAttr,
        role: str | StringAttr,
        low: int | IntAttr,
        high: int | IntAttr,
    ) -> None:
        super().__init__(model, role, low, high)

    @property
    def what(self) -> str:
        return self.role.data

    @property
    def owner(self) -> str:
        """Name of the model."""
        return symbol_text(self.model)

    @property
    def lag(self) -> tuple[int, int]:
        """Least and greatest lag, in steps."""
        return self.low.data, self.high.data

    def at(self, low: int, high: int) -> WeightsType:
        """The same model's weights at another range of lags."""
        return WeightsType(self.model, self.role, low, high)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            model = parse_symbol(parser)
            parser.parse_punctuation(",")
            role = StringAttr(parser.parse_identifier())
            return (model, role, *parse_lag(parser))

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_symbol_name(self.owner)
            printer.print_string(f", {self.what}")
            print_lag(printer, self.low, self.high)

    def verify(self) -> None:
        if self.low.data > self.high.data:
            raise VerifyException("a lag range goes from the newest version to the oldest")
        if self.low.data < NEXT:
            raise VerifyException("the newest version of a step is the one it makes (lag -1)")


@irdl_attr_definition(init=False)
class DataType(DeclaredType):
    """A data set as a whole: `!rpeg.data<@heldout, prompts>`."""

    name = "rpeg.data"
    KIND: ClassVar[str] = "data"
    source: SymbolRefAttr = param_def(converter=SymbolRefAttr.get)
    content: StringAttr = param_def(converter=StringAttr.get)


@irdl_attr_definition(init=False)
class CursorType(DeclaredType):
    """A data set at the position that this step starts from: `!rpeg.cursor<@train, prompts>`."""

    name = "rpeg.cursor"
    KIND: ClassVar[str] = "cursor"
    source: SymbolRefAttr = param_def(converter=SymbolRefAttr.get)
    content: StringAttr = param_def(converter=StringAttr.get)


@irdl_attr_definition(init=False)
class VerifierType(DeclaredType):
    """A verifier: `!rpeg.verifier<@correct, outcome>`."""

    name = "rpeg.verifier"
    KIND: ClassVar[str] = "verifier"
    source: SymbolRefAttr = param_def(converter=SymbolRefAttr.get)
    form: StringAttr = param_def(converter=StringAttr.get)


@irdl_attr_definition(init=False)
class ToolType(DeclaredType):
    """A tool or environment: `!rpeg.tool<@search, function>`."""

    name = "rpeg.tool"
    KIND: ClassVar[str] = "tool"
    source: SymbolRefAttr = param_def(converter=SymbolRefAttr.get)
    form: StringAttr = param_def(converter=StringAttr.get)


@irdl_attr_definition(init=False)
class StateType(DeclaredType):
    """A small state such as a KL coefficient: `!rpeg.state<@kl, scalar>`."""

    name = "rpeg.state"
    KIND: ClassVar[str] = "state"
    source: SymbolRefAttr = param_def(converter=SymbolRefAttr.get)
    form: StringAttr = param_def(converter=StringAttr.get)


@irdl_attr_definition
class OptimizerType(FlowType):
    """Optimizer state of a trained model: `!rpeg.opt<@actor>`."""

    name = "rpeg.opt"
    KIND: ClassVar[str] = "opt"
    model: SymbolRefAttr = param_def(converter=SymbolRefAttr.get)

    def __init__(self, model: str | SymbolRefAttr) -> None:
        super().__init__(model)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            return (parse_symbol(parser),)

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_symbol_name(self.owner)

    @property
    def owner(self) -> str:
        """Name of the model."""
        return symbol_text(self.model)


@irdl_attr_definition
class LossType(ScopedType):
    """A summand of a loss; of one model, unless it fits any: `!rpeg.loss<@actor, group>`."""

    name = "rpeg.loss"
    KIND: ClassVar[str] = "loss"
    owner_name: StringAttr = param_def(converter=StringAttr.get)
    unit: StringAttr = param_def(converter=StringAttr.get)

    def __init__(self, owner_name: str | StringAttr, unit: str | StringAttr = "sample") -> None:
        super().__init__(owner_name, unit)

    @property
    def owner(self) -> str:
        """Name of the model, or empty if the loss fits any."""
        return self.owner_name.data

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        if parser.parse_optional_punctuation("<") is None:
            return (StringAttr(""), StringAttr("sample"))
        owner = parser.parse_optional_symbol_name()
        unit = parse_scope(parser) if owner else StringAttr(parser.parse_identifier())
        parser.parse_punctuation(">")
        return (owner or StringAttr(""), unit)

    def print_parameters(self, printer: Printer) -> None:
        if not self.owner and self.scope == "sample":
            return
        with printer.in_angle_brackets():
            if not self.owner:
                printer.print_string(self.scope)
                return
            printer.print_symbol_name(self.owner)
            self.print_scope(printer)


@irdl_attr_definition
class TrajectoriesType(FlowType):
    """Completions sampled from a policy: `!rpeg.traj<@actor, 64, n = 8, lag = [0, 2] strict wait>`.

    `cut` stands after the policy if tokens were sampled from a truncated distribution. Behind a
    window stand its bound, its overflow and what befalls old spans; then `multi` if one sample may
    hold spans of several versions, and the datatype that they were sampled in unless it is bf16.
    """

    name = "rpeg.traj"
    KIND: ClassVar[str] = "traj"
    model: SymbolRefAttr = param_def(converter=SymbolRefAttr.get)
    prompts: IntAttr = param_def(converter=IntAttr.get)
    group: IntAttr = param_def(converter=IntAttr.get)
    truncated: IntAttr = param_def(converter=IntAttr.get)
    low: IntAttr = param_def(converter=IntAttr.get)
    high: IntAttr = param_def(converter=IntAttr.get)
    window: StringAttr = param_def(converter=StringAttr.get)
    spans: StringAttr = param_def(converter=StringAttr.get)
    precision: StringAttr = param_def(converter=StringAttr.get)

    def __init__(
        self,
        model: str | SymbolRefAttr,
        prompts: int | IntAttr,
        group: int | IntAttr,
        truncated: int | IntAttr,
        low: int | IntAttr,
        high: int | IntAttr,
        window: str | StringAttr = "",
        spans: str | StringAttr = "single",
        precision: str | StringAttr = "bf16",
    ) -> None:
        super().__init__(model, prompts, group, truncated, low, high, window, spans, precision)

    @property
    def owner(self) -> str:
        """Name of the policy that wrote them."""
        return symbol_text(self.model)

    @property
    def n(self) -> int:
        """Completions per prompt."""
        return self.group.data

    @property
    def cut(self) -> bool:
        """Sampled from a truncated distribution (top_p < 1, temperature 0)."""
        return bool(self.truncated.data)

    @property
    def lag(self) -> tuple[int, int]:
        """Least and greatest lag of the weights they were sampled from, in steps."""
        return self.low.data, self.high.data

    @property
    def bound(self) -> str:
        """What holds the greatest lag, strict or head; empty without a window."""
        return self.window.data.partition(" ")[0]

    @property
    def multi(self) -> bool:
        """Whether one sample may hold spans of several versions."""
        return self.spans.data == "multi"

    @property
    def dtype(self) -> str:
        """The datatype of the weights that they were sampled from."""
        return self.precision.data

    def resized(self, prompts: int) -> TrajectoriesType:
        """The same with another number of prompts."""
        model, _, *rest = self.parameters
        return TrajectoriesType.new([model, IntAttr(prompts), *rest])

    def aged(self, steps: int) -> TrajectoriesType:
        """The same after a wait of up to so many steps."""
        *before, _, window, spans, precision = self.parameters
        oldest = IntAttr(self.high.data + steps)
        return TrajectoriesType.new([*before, oldest, window, spans, precision])

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            model = parse_symbol(parser)
            cut = IntAttr(int(parser.parse_optional_keyword("cut") is not None))
            parser.parse_punctuation(",")
            prompts = IntAttr(parser.parse_integer(allow_boolean=False, allow_negative=False))
            parser.parse_punctuation(",")
            parser.parse_keyword("n")
            parser.parse_punctuation("=")
            n = IntAttr(parser.parse_integer(allow_boolean=False, allow_negative=False))
            return (model, prompts, n, cut, *_parse_ages(parser))

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_symbol_name(self.owner)
            cut = " cut" if self.cut else ""
            printer.print_string(f"{cut}, {self.prompts.data}, n = {self.n}")
            print_lag(printer, self.low, self.high)
            printer.print_string(f" {self.window.data}" if self.window.data else "")
            printer.print_string(", multi" if self.multi else "")
            printer.print_string(f", {self.dtype}" if self.dtype != "bf16" else "")


def _parse_ages(parser: AttrParser) -> Sequence[Attribute]:
    """(low, high, window, spans, dtype) behind the number of completions."""
    low, high, window, spans, dtype = IntAttr(0), IntAttr(0), "", "single", "bf16"
    while parser.parse_optional_punctuation(",") is not None:
        match parser.parse_identifier():
            case "lag":
                low, high = parse_range(parser)
                found = (parser.parse_optional_keyword_in(words) for words in WORDS.values())
                window = " ".join(filter(None, found))
            case "multi":
                spans = "multi"
            case word:
                dtype = word
    return low, high, StringAttr(window), StringAttr(spans), StringAttr(dtype)


@irdl_attr_definition
class TokenFieldType(ScopedType):
    """A number for each token: `!rpeg.tok<logprob, @actor sampled>`, `!rpeg.tok<advantage, batch>`.

    A log-prob carries the model that made it, and whether it was recorded while sampling.
    """

    name = "rpeg.tok"
    KIND: ClassVar[str] = "tok"
    meaning: StringAttr = param_def(converter=StringAttr.get)
    owner_name: StringAttr = param_def(converter=StringAttr.get)
    recorded: IntAttr = param_def(converter=IntAttr.get)
    unit: StringAttr = param_def(converter=StringAttr.get)

    def __init__(
        self,
        meaning: str | StringAttr,
        owner_name: str | StringAttr,
        recorded: int | IntAttr,
        unit: str | StringAttr = "sample",
    ) -> None:
        super().__init__(meaning, owner_name, recorded, unit)

    @staticmethod
    def of(meaning: str, owner: str = "", sampled: bool = False) -> TokenFieldType:
        """A per-token field."""
        return TokenFieldType(meaning, owner, int(sampled))

    @property
    def what(self) -> str:
        return self.meaning.data

    @property
    def owner(self) -> str:
        """Name of the model that made it, or empty."""
        return self.owner_name.data

    @property
    def sampled(self) -> bool:
        """Recorded by the engine while sampling."""
        return bool(self.recorded.data)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            meaning = StringAttr(parser.parse_identifier())
            if parser.parse_optional_punctuation(",") is None:
                return (meaning, StringAttr(""), IntAttr(0), StringAttr("sample"))
            owner = parser.parse_optional_symbol_name()
            if owner is None:
                return (meaning, StringAttr(""), IntAttr(0), StringAttr(parser.parse_identifier()))
            sampled = parser.parse_optional_keyword("sampled") is not None
            return (meaning, owner, IntAttr(int(sampled)), parse_scope(parser))

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(self.what)
            if self.owner:
                printer.print_string(", ")
                printer.print_symbol_name(self.owner)
                printer.print_string(" sampled" if self.sampled else "")
            self.print_scope(printer)


@irdl_attr_definition
class ResponseFieldType(ScopedType):
    """A number for each response: `!rpeg.seq<reward>`, `!rpeg.seq<advantage, group>`."""

    name = "rpeg.seq"
    KIND: ClassVar[str] = "seq"
    meaning: StringAttr = param_def(converter=StringAttr.get)
    unit: StringAttr = param_def(converter=StringAttr.get)

    def __init__(self, meaning: str | StringAttr, unit: str | StringAttr = "sample") -> None:
        super().__init__(meaning, unit)

    @property
    def what(self) -> str:
        return self.meaning.data

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            return (StringAttr(parser.parse_identifier()), parse_scope(parser))

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(self.what)
            self.print_scope(printer)


@irdl_attr_definition
class MetricType(FlowType):
    """A number that is reported: `!rpeg.metric`."""

    name = "rpeg.metric"
    KIND: ClassVar[str] = "metric"


TYPES = (
    UnknownType,
    WeightsType,
    OptimizerType,
    DataType,
    CursorType,
    VerifierType,
    ToolType,
    StateType,
    TrajectoriesType,
    TokenFieldType,
    ResponseFieldType,
    LossType,
    MetricType,
)
"""Every type of the dialect."""


def is_unknown(value_type: Attribute) -> bool:
    """Whether a value's definition already has an error."""
    return isinstance(value_type, UnknownType)
