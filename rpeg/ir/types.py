"""Types of the `rpeg` dialect: what flows through a step, with the facts that rules are about.

A version of weights is a range of *lags*: how many steps before this one's start they were made.
`0..0` is the version as step i starts (`actor@i`), `0..2` the window `actor@[i-2..i]`, `-1..-1` the
version that this step makes (`actor@i+1`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import IntAttr, StringAttr, SymbolRefAttr
from xdsl.ir import Attribute, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import irdl_attr_definition, param_def
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

NEXT = -1
"""The lag of a version that the step itself makes."""


def _symbol(name: str | SymbolRefAttr) -> SymbolRefAttr:
    return name if isinstance(name, SymbolRefAttr) else SymbolRefAttr(name)


def symbol_text(symbol: SymbolRefAttr) -> str:
    """The name that a reference says; references here have one part."""
    return symbol.root_reference.data


def _text(value: str | StringAttr) -> StringAttr:
    return value if isinstance(value, StringAttr) else StringAttr(value)


def _int(value: int | IntAttr) -> IntAttr:
    return value if isinstance(value, IntAttr) else IntAttr(value)


def _parse_symbol(parser: AttrParser) -> SymbolRefAttr:
    return SymbolRefAttr(parser.parse_symbol_name())


def _parse_lag(parser: AttrParser) -> tuple[IntAttr, IntAttr]:
    """`, lag = 0..2` where present, else the current version."""
    if parser.parse_optional_punctuation(",") is None:
        return IntAttr(0), IntAttr(0)
    parser.parse_keyword("lag")
    parser.parse_punctuation("=")
    parser.parse_punctuation("[")
    low = parser.parse_integer(allow_boolean=False)
    parser.parse_punctuation(",")
    high = parser.parse_integer(allow_boolean=False)
    parser.parse_punctuation("]")
    return IntAttr(low), IntAttr(high)


def _print_lag(printer: Printer, low: IntAttr, high: IntAttr) -> None:
    if (low.data, high.data) != (0, 0):
        printer.print_string(f", lag = [{low.data}, {high.data}]")


class FlowType(ParametrizedAttribute, TypeAttribute):
    """A type of the step; `kind` and `what` are the two words that operand patterns match."""

    KIND: ClassVar[str] = ""

    @property
    def what(self) -> str:
        """The second word of a pattern: a role, a field's meaning; empty if there is none."""
        return ""


@irdl_attr_definition
class UnknownType(FlowType):
    """The type of a value whose definition already has an error: no rule speaks of it."""

    name = "rpeg.unknown"


@irdl_attr_definition
class WeightsType(FlowType):
    """Weights of a model at a range of versions: `!rpeg.weights<@actor, policy, lag = [0, 2]>`."""

    name = "rpeg.weights"
    KIND: ClassVar[str] = "model"
    model: SymbolRefAttr = param_def(converter=_symbol)
    role: StringAttr = param_def(converter=_text)
    low: IntAttr = param_def(converter=_int)
    high: IntAttr = param_def(converter=_int)

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
            model = _parse_symbol(parser)
            parser.parse_punctuation(",")
            role = StringAttr(parser.parse_identifier())
            return (model, role, *_parse_lag(parser))

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_symbol_name(self.owner)
            printer.print_string(f", {self.what}")
            _print_lag(printer, self.low, self.high)

    def verify(self) -> None:
        if self.low.data > self.high.data:
            raise VerifyException("a lag range goes from the newest version to the oldest")
        if self.low.data < NEXT:
            raise VerifyException("the newest version of a step is the one it makes (lag -1)")


class _Named(FlowType):
    """A type of one symbol and one word: `<@name, word>`."""

    def __init__(self, symbol: str | SymbolRefAttr, word: str | StringAttr) -> None:
        super().__init__(symbol, word)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            symbol = _parse_symbol(parser)
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


@irdl_attr_definition(init=False)
class DataType(_Named):
    """A data set as a whole: `!rpeg.data<@heldout, prompts>`."""

    name = "rpeg.data"
    KIND: ClassVar[str] = "data"
    source: SymbolRefAttr = param_def(converter=_symbol)
    content: StringAttr = param_def(converter=_text)


@irdl_attr_definition(init=False)
class CursorType(_Named):
    """A data set at the position that this step starts from: `!rpeg.cursor<@train, prompts>`."""

    name = "rpeg.cursor"
    KIND: ClassVar[str] = "cursor"
    source: SymbolRefAttr = param_def(converter=_symbol)
    content: StringAttr = param_def(converter=_text)


@irdl_attr_definition(init=False)
class VerifierType(_Named):
    """A verifier: `!rpeg.verifier<@correct, outcome>`."""

    name = "rpeg.verifier"
    KIND: ClassVar[str] = "verifier"
    source: SymbolRefAttr = param_def(converter=_symbol)
    form: StringAttr = param_def(converter=_text)


@irdl_attr_definition(init=False)
class ToolType(_Named):
    """A tool or environment: `!rpeg.tool<@search, function>`."""

    name = "rpeg.tool"
    KIND: ClassVar[str] = "tool"
    source: SymbolRefAttr = param_def(converter=_symbol)
    form: StringAttr = param_def(converter=_text)


@irdl_attr_definition(init=False)
class StateType(_Named):
    """A small state such as a KL coefficient: `!rpeg.state<@kl, scalar>`."""

    name = "rpeg.state"
    KIND: ClassVar[str] = "state"
    source: SymbolRefAttr = param_def(converter=_symbol)
    form: StringAttr = param_def(converter=_text)


class _OfModel(FlowType):
    """A type of one model: `<@actor>`."""

    def __init__(self, model: str | SymbolRefAttr) -> None:
        super().__init__(model)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            return (_parse_symbol(parser),)

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_symbol_name(self.owner)

    @property
    def owner(self) -> str:
        """Name of the model."""
        model = self.parameters[0]
        assert isinstance(model, SymbolRefAttr)
        return symbol_text(model)


@irdl_attr_definition(init=False)
class OptimizerType(_OfModel):
    """Optimizer state of a trained model: `!rpeg.opt<@actor>`."""

    name = "rpeg.opt"
    KIND: ClassVar[str] = "opt"
    model: SymbolRefAttr = param_def(converter=_symbol)


@irdl_attr_definition
class LossType(FlowType):
    """A summand of a loss; of one model, unless it fits any: `!rpeg.loss<@actor>`, `!rpeg.loss`."""

    name = "rpeg.loss"
    KIND: ClassVar[str] = "loss"
    owner_name: StringAttr = param_def(converter=_text)

    def __init__(self, owner_name: str | StringAttr) -> None:
        super().__init__(owner_name)

    @property
    def owner(self) -> str:
        """Name of the model, or empty if the loss fits any."""
        return self.owner_name.data

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        if parser.parse_optional_punctuation("<") is None:
            return (StringAttr(""),)
        name = parser.parse_symbol_name()
        parser.parse_punctuation(">")
        return (name,)

    def print_parameters(self, printer: Printer) -> None:
        if self.owner:
            with printer.in_angle_brackets():
                printer.print_symbol_name(self.owner)


@irdl_attr_definition
class PromptsType(FlowType):
    """A batch of prompts: `!rpeg.prompts<64>`."""

    name = "rpeg.prompts"
    KIND: ClassVar[str] = "prompts"
    size: IntAttr = param_def(converter=_int)

    def __init__(self, size: int | IntAttr) -> None:
        super().__init__(size)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        return (_parse_size(parser),)

    def print_parameters(self, printer: Printer) -> None:
        printer.print_string(f"<{self.size.data}>")


@irdl_attr_definition
class DemosType(FlowType):
    """A batch of demonstrations: `!rpeg.demos<64>`."""

    name = "rpeg.demos"
    KIND: ClassVar[str] = "demos"
    size: IntAttr = param_def(converter=_int)

    def __init__(self, size: int | IntAttr) -> None:
        super().__init__(size)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        return (_parse_size(parser),)

    def print_parameters(self, printer: Printer) -> None:
        printer.print_string(f"<{self.size.data}>")


def _parse_size(parser: AttrParser) -> IntAttr:
    with parser.in_angle_brackets():
        return IntAttr(parser.parse_integer(allow_boolean=False, allow_negative=False))


@irdl_attr_definition
class TrajectoriesType(FlowType):
    """Completions sampled from a policy: `!rpeg.traj<@actor, 64, n = 8, lag = [0, 2]>`.

    `cut` stands after the policy if tokens were sampled from a truncated distribution.
    """

    name = "rpeg.traj"
    KIND: ClassVar[str] = "traj"
    model: SymbolRefAttr = param_def(converter=_symbol)
    prompts: IntAttr = param_def(converter=_int)
    group: IntAttr = param_def(converter=_int)
    truncated: IntAttr = param_def(converter=_int)
    low: IntAttr = param_def(converter=_int)
    high: IntAttr = param_def(converter=_int)

    def __init__(
        self,
        model: str | SymbolRefAttr,
        prompts: int | IntAttr,
        group: int | IntAttr,
        truncated: int | IntAttr,
        low: int | IntAttr,
        high: int | IntAttr,
    ) -> None:
        super().__init__(
            model,
            prompts,
            group,
            truncated,
            low,
            high,
        )

    @property
    def owner(self) -> str:
        """Name of the policy that wrote them."""
        return symbol_text(self.model)

    @property
    def n(self) -> int:
        """Completions a prompt."""
        return self.group.data

    @property
    def cut(self) -> bool:
        """Sampled from a truncated distribution (top_p < 1, temperature 0)."""
        return bool(self.truncated.data)

    @property
    def lag(self) -> tuple[int, int]:
        """Least and greatest lag of the weights they were sampled from, in steps."""
        return self.low.data, self.high.data

    def resized(self, prompts: int) -> TrajectoriesType:
        """The same with another number of prompts."""
        return TrajectoriesType(
            self.model, prompts, self.group, self.truncated, self.low, self.high
        )

    def aged(self, steps: int) -> TrajectoriesType:
        """The same after a wait of up to so many steps."""
        oldest = self.high.data + steps
        return TrajectoriesType(
            self.model, self.prompts, self.group, self.truncated, self.low, oldest
        )

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            model = _parse_symbol(parser)
            cut = IntAttr(int(parser.parse_optional_keyword("cut") is not None))
            parser.parse_punctuation(",")
            prompts = IntAttr(parser.parse_integer(allow_boolean=False, allow_negative=False))
            parser.parse_punctuation(",")
            parser.parse_keyword("n")
            parser.parse_punctuation("=")
            n = IntAttr(parser.parse_integer(allow_boolean=False, allow_negative=False))
            return (model, prompts, n, cut, *_parse_lag(parser))

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_symbol_name(self.owner)
            cut = " cut" if self.cut else ""
            printer.print_string(f"{cut}, {self.prompts.data}, n = {self.n}")
            _print_lag(printer, self.low, self.high)


@irdl_attr_definition
class TokenFieldType(FlowType):
    """A number for each token: `!rpeg.tok<logprob, @actor sampled>`, `!rpeg.tok<advantage>`.

    A log-prob carries the model that made it, and whether it was recorded while sampling.
    """

    name = "rpeg.tok"
    KIND: ClassVar[str] = "tok"
    meaning: StringAttr = param_def(converter=_text)
    owner_name: StringAttr = param_def(converter=_text)
    recorded: IntAttr = param_def(converter=_int)

    def __init__(
        self,
        meaning: str | StringAttr,
        owner_name: str | StringAttr,
        recorded: int | IntAttr,
    ) -> None:
        super().__init__(meaning, owner_name, recorded)

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
                return (meaning, StringAttr(""), IntAttr(0))
            owner = parser.parse_symbol_name()
            sampled = parser.parse_optional_keyword("sampled") is not None
            return (meaning, owner, IntAttr(int(sampled)))

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(self.what)
            if self.owner:
                printer.print_string(", ")
                printer.print_symbol_name(self.owner)
                printer.print_string(" sampled" if self.sampled else "")


@irdl_attr_definition
class ResponseFieldType(FlowType):
    """A number for each response: `!rpeg.seq<reward>`."""

    name = "rpeg.seq"
    KIND: ClassVar[str] = "seq"
    meaning: StringAttr = param_def(converter=_text)

    def __init__(self, meaning: str | StringAttr) -> None:
        super().__init__(meaning)

    @property
    def what(self) -> str:
        return self.meaning.data

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            return (StringAttr(parser.parse_identifier()),)

    def print_parameters(self, printer: Printer) -> None:
        printer.print_string(f"<{self.what}>")


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
    PromptsType,
    DemosType,
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
