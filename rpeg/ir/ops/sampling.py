"""Operations that read data, weights and trajectories: batch, generate, score, logprob, values."""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from xdsl.dialects.builtin import SymbolRefAttr
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, prop_def, result_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure

from rpeg.ir.base import RpegOp, index_name
from rpeg.ir.declared import declaration
from rpeg.ir.definitions import gives, hidden_result, many, maybe, operand, required, setting
from rpeg.ir.ops.allow import allowed_staleness, allowed_windows
from rpeg.ir.ops.declare import DeclareOp
from rpeg.ir.rules import violations
from rpeg.ir.rules.codes import Code
from rpeg.ir.rules.models import same_tokens
from rpeg.ir.rules.staleness import WORDS, old_spans_violations, unallowed
from rpeg.ir.rules.tools import tool_violations
from rpeg.ir.rules.violations import Violation
from rpeg.ir.text.assembly import parse_settings, print_settings
from rpeg.ir.text.naming import name_of
from rpeg.ir.types.attributes import plain
from rpeg.ir.types.batches import DemosType, PairsType, PromptsType
from rpeg.ir.types.flow import FlowType, symbol_text
from rpeg.ir.types.values import (
    CursorType,
    DataType,
    ResponseFieldType,
    StateType,
    TokenFieldType,
    ToolType,
    TrajectoriesType,
    UnknownType,
    VerifierType,
    WeightsType,
)
from rpeg.ir.vocabulary.records import BOUND, OLD_SPANS, OVERFLOW
from rpeg.ir.vocabulary.settings import FLOAT, INT, TEXT, list_of, word
from rpeg.ir.vocabulary.signature import Scope

LANGUAGE_MODEL = "model.policy | model.actor_critic"
SCORER = (
    "verifier | model.reward | model.process_reward | model.generative_reward | tool.environment"
)
BATCHES: Mapping[str, type[PromptsType | DemosType | PairsType]] = {
    "prompts": PromptsType,
    "demos": DemosType,
    "pairs": PairsType,
}
"""What a batch of each kind of data is."""


@irdl_op_definition
class GetOp(RpegOp):
    """A declared thing that never changes in the step: frozen weights, data, a verifier, a tool.

    `%ref = rpeg.get @ref : !rpeg.weights<@ref, policy>`
    """

    name = "rpeg.get"
    symbol = prop_def(SymbolRefAttr)
    value_ = result_def(FlowType)
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        return [self.results[0].type]

    @property
    def symbol_name(self) -> str:
        """Name of the declaration."""
        return symbol_text(self.symbol)

    @staticmethod
    def of(symbol: str, value_type: Attribute) -> "GetOp":
        """The declaration `symbol`, as a value of the given type."""
        return GetOp.create(properties={"symbol": SymbolRefAttr(symbol)}, result_types=[value_type])

    def rules(self) -> Iterator[Violation]:
        held, name = self.results[0].type, self.symbol_name
        declared = declaration(self, name)
        if not isinstance(declared, DeclareOp):  # another rule's
            return
        wanted = value_type(declared.KIND, declared.form_name, name)
        if held != wanted:
            yield Violation("result-type", f"@{name} is read as {held}; it is {wanted}")

    @classmethod
    def parse(cls, parser: Parser) -> "GetOp":
        symbol = parser.parse_symbol_name().data
        _, notes = parse_settings(parser)
        parser.parse_punctuation(":")
        op = cls.of(symbol, parser.parse_type())
        op.attributes.update(notes)
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.symbol_name)
        print_settings(printer, {}, self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.results[0].type)


@irdl_op_definition
class StaleOp(RpegOp):
    """The same weights at older versions: the newest is `low` steps old, the oldest `high`.

    Written as a version: `actor@i-1` is exact, `actor@[i-2..i]` any version of the window.
    """

    name = "rpeg.stale"
    SCOPE: ClassVar[Scope] = "step"
    weights = operand("model")
    low = required(INT, least=0)
    high = required(INT, least=0)
    stale = gives("model")
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        held = self.weights.type
        assert isinstance(held, WeightsType)
        low, high = self.int_of("low"), self.int_of("high")
        return [held.at(min(low, high), max(low, high))]

    def rules(self) -> Iterator[Violation]:
        if self.int_of("low") > self.int_of("high"):
            yield Violation(
                "empty-window", "the window of versions is empty: the older version comes first"
            )


@irdl_op_definition
class PoisonOp(RpegOp):
    """Stands for a value whose definition has an error, so that no rule speaks of what follows.

    The front end makes it; no module that holds one leaves the front end.
    """

    name = "rpeg.poison"
    poisoned = result_def(UnknownType)

    def infer(self) -> Sequence[Attribute]:
        return [UnknownType()]


@irdl_op_definition
class BatchOp(RpegOp):
    """The next rows of a data set."""

    name = "rpeg.batch"
    SURFACE: ClassVar[str] = "batch"
    SCOPE: ClassVar[Scope] = "batch"
    source = operand("cursor.prompts | cursor.demos | cursor.pairs")
    size = required(INT, "64", least=1)
    order = setting(word("shuffle", "sequential"), "shuffle")
    seed = setting(INT, 0)
    rows = gives("batch")
    cursor = hidden_result("cursor")
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        cursor = self.source.type
        assert isinstance(cursor, CursorType)
        return [BATCHES[cursor.what](self.int_of("size")), cursor]


@irdl_op_definition
class GenerateOp(RpegOp):
    """Trajectories, and the log-probs under which they were sampled."""

    name = "rpeg.generate"
    SURFACE: ClassVar[str] = "generate"
    PLACED: ClassVar[bool] = True
    READS_OLD: ClassVar[bool] = True
    weights = operand(LANGUAGE_MODEL)
    prompts = operand("prompts")
    tools = many("tool")
    n = setting(INT, 1, least=1)
    max_tokens = required(INT, "1024", least=1)
    temperature = setting(FLOAT, 1.0, least=0)
    top_p = setting(FLOAT, 1.0, above=0, most=1)
    max_turns = setting(INT, 1, least=1)
    stop = maybe(list_of(TEXT))
    dtype = setting(word("bf16", "fp8", "fp32"), "bf16")
    bound = maybe(BOUND)
    overflow = maybe(OVERFLOW)
    old_spans = maybe(OLD_SPANS)
    routing = setting(word("free", "record"), "free")
    seed = setting(INT, 0)
    trajectories = gives("traj")
    logprobs = gives("tok.logprob")
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        weights, prompts = self.weights.type, self.prompts.type
        assert isinstance(weights, WeightsType) and isinstance(prompts, PromptsType)
        cut = self.float_of("top_p") < 1.0 or self.float_of("temperature") == 0.0
        low, high = (max(lag, 0) for lag in weights.lag)
        window = self._window()
        y = TrajectoriesType(
            weights.model,
            prompts.size,
            self.int_of("n"),
            int(cut),
            low,
            high,
            window=" ".join(window.values()),
            spans="multi" if window.get("overflow") == "resume" else "single",
            precision=self.text_of("dtype"),
        )
        return [y, TokenFieldType.of("logprob", weights.owner, sampled=True)]

    @classmethod
    def complete(cls, operands: Sequence[SSAValue], settings: dict[str, Attribute]) -> None:
        weights = operands[0].type if operands else None
        if isinstance(weights, WeightsType) and weights.lag[0] != weights.lag[1]:
            settings.setdefault("bound", plain("strict"))
            settings.setdefault("overflow", plain("wait"))

    def rules(self) -> Iterator[Violation]:
        weights = self.weights.type
        assert isinstance(weights, WeightsType)
        yield from self._window_rules(weights)
        yield from self._ceiling_rule(weights)
        yield from tool_violations(self, self.tools)

    def _window(self) -> dict[str, str]:
        """What is said of the window of versions: bound, overflow, old_spans."""
        return {name: self.text_of(name) for name in WORDS if name in self.properties}

    def _ceiling_rule(self, weights: WeightsType) -> Iterator[Violation]:
        """Where the file says how much staleness it allows, the step keeps to it."""
        allowed, oldest, i = allowed_staleness(self), weights.lag[1], index_name(self)
        if allowed is not None and oldest > allowed:
            window = f"[{i}-{allowed}..{i}]" if allowed else i
            yield Violation(
                "lag-beyond-allow",
                f"`{weights.owner}` may be {oldest} versions old, the file allows {allowed}: read "
                f"{weights.owner}@{window}, or allow staleness={oldest}",
                violations.operand(0),
            )

    def _window_rules(self, weights: WeightsType) -> Iterator[Violation]:
        if weights.lag[0] != weights.lag[1]:
            misfits = list(old_spans_violations(self._window()))
            yield from misfits or unallowed(self._window(), allowed_windows(self))
            return
        for name in self._window():
            yield Violation(
                "bound-without-window",
                f"`{name}` belongs to a window of versions: write the weights as "
                f"{weights.owner}@[i-2..i], or remove it",
            )


@irdl_op_definition
class ScoreOp(RpegOp):
    """One reward per response (outcome) or per token (process)."""

    name = "rpeg.score"
    SURFACE: ClassVar[str] = "score"
    PLACED: ClassVar[bool] = True
    scorer = operand(SCORER)
    trajectories = operand("traj")
    reward = gives("tok.reward | seq.reward")
    traits = traits_def(Pure())

    @property
    def passes_model(self) -> bool:
        """Whether it is a forward pass of a model, rather than a question to somebody."""
        held = self.scorer.type
        return isinstance(held, WeightsType) and held.what != "generative_reward"

    def infer(self) -> Sequence[Attribute]:
        scorer = self.scorer.type
        assert isinstance(scorer, FlowType)
        per_token = scorer.what in ("process", "process_reward")
        return [TokenFieldType.of("reward") if per_token else ResponseFieldType("reward")]

    def rules(self) -> Iterator[Violation]:
        return same_tokens(self, self.scorer, self.trajectories)


@irdl_op_definition
class LogprobOp(RpegOp):
    """Log-probs of the tokens of responses under a model's weights, at their temperature."""

    name = "rpeg.logprob"
    SURFACE: ClassVar[str] = "logprob"
    PLACED: ClassVar[bool] = True
    READS_NEXT: ClassVar[bool] = True
    LAGGED: ClassVar[Code] = "old-from-lagged-weights"
    weights = operand(LANGUAGE_MODEL)
    trajectories = operand("traj | pairs")
    logprobs = gives("tok.logprob")
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        return [TokenFieldType.of("logprob", name_of(self.weights))]

    def rules(self) -> Iterator[Violation]:
        return same_tokens(self, self.weights, self.trajectories)


@irdl_op_definition
class OnPolicyLogprobOp(RpegOp):
    """The log-probs that the update itself computes, detached: exact for one optimizer step.

    Written by rpeg-eliminate-old-logprob; it has no surface.
    """

    name = "rpeg.on_policy_logprob"
    trajectories = operand("traj")
    logprobs = gives("tok.logprob")
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        held = self.trajectories.type
        assert isinstance(held, TrajectoriesType)
        return [TokenFieldType.of("logprob", held.owner)]


@irdl_op_definition
class ValuesOp(RpegOp):
    """The critic's value of every position."""

    name = "rpeg.values"
    SURFACE: ClassVar[str] = "values"
    PLACED: ClassVar[bool] = True
    READS_NEXT: ClassVar[bool] = True
    weights = operand("model.value | model.actor_critic")
    trajectories = operand("traj")
    values = gives("tok.value")
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        return [TokenFieldType.of("value", name_of(self.weights))]

    def rules(self) -> Iterator[Violation]:
        return same_tokens(self, self.weights, self.trajectories)


def value_type(kind: str, form: str, symbol: str) -> FlowType:
    """The type of a declared thing of this kind and form, read with rpeg.get."""
    match kind:
        case "model":
            return WeightsType(symbol, form, 0, 0)
        case "data":
            return DataType(symbol, form)
        case "verifier":
            return VerifierType(symbol, form)
        case "tool":
            return ToolType(symbol, form)
        case _:
            return StateType(symbol, form)


OPS: tuple[type[RpegOp], ...] = (
    BatchOp,
    GenerateOp,
    ScoreOp,
    LogprobOp,
    ValuesOp,
    GetOp,
    StaleOp,
    PoisonOp,
    OnPolicyLogprobOp,
)
