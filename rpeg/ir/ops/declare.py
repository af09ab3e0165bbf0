"""What exists: pipelines, their models, data, verifiers, tools and states; what to expect."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import takewhile
from typing import ClassVar, Self, TypeVar

from xdsl.dialects.builtin import StringAttr, SymbolNameConstraint, SymbolRefAttr
from xdsl.ir import Attribute, Operation
from xdsl.irdl import (
    base,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    region_def,
    traits_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import NoTerminator, SymbolOpInterface, SymbolTable

from rpeg.ir.base import CheckedOp
from rpeg.ir.declared import declarations, index_of, pipeline_of, step_of, symbol_name
from rpeg.ir.definitions import maybe, required, setting
from rpeg.ir.isolated import Isolated
from rpeg.ir.rules import violations
from rpeg.ir.rules.expectations import expectation_violations
from rpeg.ir.rules.horizon import endless_warmup
from rpeg.ir.rules.models import enough_layers
from rpeg.ir.rules.settings import known_record_violations, setting_violations
from rpeg.ir.rules.templates import template_rules
from rpeg.ir.rules.tools import tool_source
from rpeg.ir.rules.uris import source_problem
from rpeg.ir.rules.violations import Violation, hint
from rpeg.ir.text.assembly import parse_settings, print_settings
from rpeg.ir.types.attributes import RecordAttr, SecondsAttr, plain
from rpeg.ir.types.flow import symbol_text
from rpeg.ir.types.values import WeightsType
from rpeg.ir.vocabulary.patterns import operands
from rpeg.ir.vocabulary.records import EXPECT
from rpeg.ir.vocabulary.settings import (
    DURATION,
    FLOAT,
    INT,
    TEXT,
    Setting,
    record,
    word,
)
from rpeg.ir.vocabulary.signature import Signature

Found = TypeVar("Found", bound=Operation)


@irdl_op_definition
class PipelineOp(CheckedOp):
    """One pipeline: declarations, one step, what to expect of it, plans."""

    name = "rpeg.pipeline"
    sym_name = prop_def(SymbolNameConstraint())
    body = region_def("single_block")
    traits = traits_def(SymbolOpInterface(), SymbolTable(), Isolated(), NoTerminator())
    assembly_format = "$sym_name attr-dict-with-keyword $body"

    @property
    def title(self) -> str:
        """Its name."""
        return symbol_name(self) or ""

    def ops_of(self, kind: type[Found]) -> list[Found]:
        """Its operations of a kind, without those inside of others, in the order of the text."""
        return [op for op in self.body.block.ops if isinstance(op, kind)]

    def rules(self) -> Iterator[Violation]:
        steps = [op for op in self.body.block.ops if op.name == "rpeg.step"]
        if len(steps) != 1:
            yield Violation("one-step", f"a pipeline has one step; `{self.title}` has {len(steps)}")


@dataclass(frozen=True)
class Form:
    """One constructor of a kind of declaration: `policy(source, ...)`."""

    doc: str
    settings: tuple[str, ...]
    source: str = "uri"
    """What its operand is, as a pattern; empty if it has none."""
    defaults: Mapping[str, Attribute] = field(default_factory=dict[str, Attribute])
    """Where they differ from the operation's."""
    needs: Mapping[str, str] = field(default_factory=dict[str, str])
    """Settings that this constructor requires, though others of its kind do not, with what messages
    offer.
    """


class DeclareOp(CheckedOp):
    """A declaration: `rpeg.model @actor policy("hf:...") {optim = ...}`."""

    WITHIN: ClassVar[str] = "rpeg.pipeline"
    KIND: ClassVar[str] = ""
    FORMS: ClassVar[Mapping[str, Form]] = {}
    sym_name = prop_def(SymbolNameConstraint())
    form = prop_def(StringAttr)
    source = opt_prop_def(base(StringAttr) | base(SymbolRefAttr))
    traits = traits_def(SymbolOpInterface())

    @property
    def title(self) -> str:
        """The declared name."""
        return symbol_name(self) or ""

    @property
    def form_name(self) -> str:
        """The constructor: policy, prompts, outcome, ..."""
        return self.form.data

    @property
    def initial(self) -> str | None:
        """The model whose initial weights these are, if the source is one."""
        return symbol_text(self.source) if isinstance(self.source, SymbolRefAttr) else None

    @property
    def uri(self) -> str | None:
        """The source outside the file, if there is one."""
        return self.source.data if isinstance(self.source, StringAttr) else None

    @classmethod
    @cache
    def signatures(cls) -> Mapping[str, Signature]:
        """The signature of each constructor."""
        return {name: cls._signature(name, form) for name, form in cls.FORMS.items()}

    @classmethod
    def form_settings(cls, form: str) -> Mapping[str, Setting]:
        """The settings of a constructor; none of one that does not exist."""
        signature = cls.signatures().get(form)
        return signature.settings if signature is not None else {}

    @classmethod
    def _signature(cls, name: str, form: Form) -> Signature:
        table = cls.setting_table()
        things = operands(f"source: {form.source}") if form.source else ()
        settings = {
            s: replace(
                table[s],
                default=form.defaults.get(s, table[s].default),
                required=table[s].required or s in form.needs,
                usual=form.needs.get(s, table[s].usual),
            )
            for s in form.settings
        }
        return Signature(name, form.doc, things, (name,), settings)

    def settings(self) -> dict[str, Attribute]:
        """The settings, without name, form and source."""
        return {k: v for k, v in self.properties.items() if k not in ("sym_name", "form", "source")}

    def violations(self) -> Iterator[Violation]:
        form = self.signatures().get(self.form_name)
        if form is None:
            known = hint(self.form_name, self.FORMS) or f"; known: {', '.join(sorted(self.FORMS))}"
            yield Violation(
                "unknown-word", f"`{self.form_name}` is not a kind of {self.KIND}{known}"
            )
            return
        misfits = list(setting_violations(form.name, form.settings, self.settings()))
        yield from misfits
        yield from self._source_rule()
        if not any(misfit.code == "setting-kind" for misfit in misfits):
            yield from self.rules()
        if not self.used():
            yield Violation(
                "unused-declaration",
                f"`{self.title}` is declared and never used",
                severity="warning",
            )

    def _source_rule(self) -> Iterator[Violation]:
        if self.source is None and self.FORMS[self.form_name].source:
            yield Violation("bad-source", f'{self.form_name} needs a source "scheme:rest"')
        if self.uri is None:
            return
        problem = source_problem(self.KIND, self.uri)
        if problem is not None:
            yield Violation("bad-source", problem, violations.setting("source"))

    def used(self) -> bool:
        """Whether the step, or another declaration, uses it."""
        pipeline = pipeline_of(self)
        return pipeline is None or any(_mentions(op, self.title) for op in pipeline.walk())

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        properties: dict[str, Attribute] = {"sym_name": parser.parse_symbol_name()}
        form = parser.parse_identifier()
        properties["form"] = StringAttr(form)
        parser.parse_punctuation("(")
        if (symbol := parser.parse_optional_symbol_name()) is not None:
            properties["source"] = SymbolRefAttr(symbol)
        elif (text := parser.parse_optional_str_literal()) is not None:
            properties["source"] = StringAttr(text)
        parser.parse_punctuation(")")
        settings, notes = parse_settings(parser, cls.form_settings(form))
        return cls.create(properties={**settings, **properties}, attributes=notes)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.title)
        printer.print_string(f" {self.form_name}(")
        if self.initial is not None:
            printer.print_symbol_name(self.initial)
        elif self.source is not None:
            printer.print_attribute(self.source)
        printer.print_string(")")
        table = self.form_settings(self.form_name)
        print_settings(printer, self.settings(), self.attributes, table)


def _mentions(op: Operation, name: str) -> bool:
    """Whether an operation uses a declared name: reads it, holds it as state, or starts from it."""
    match op.name:
        case "rpeg.get":
            symbol = op.properties.get("symbol")
            return isinstance(symbol, SymbolRefAttr) and symbol_text(symbol) == name
        case "rpeg.step":
            types = op.regions[0].block.arg_types
            return any(
                name in (getattr(t, "owner", None), getattr(t, "symbol", None)) for t in types
            )
        case "rpeg.model":
            source = op.properties.get("source")
            return isinstance(source, SymbolRefAttr) and symbol_text(source) == name
        case _:
            return False


_MODEL = ("optim", "lora", "dtype", "router_aux")


def _model(doc: str, *more: str) -> Form:
    """A model that may be trained, and may start from another's initial weights."""
    return Form(doc, (*_MODEL, *more), "uri | init", {"router_aux": plain(0.0)})


@irdl_op_definition
class ModelOp(DeclareOp):
    """A model; trained if it has an optimizer."""

    name = "rpeg.model"
    KIND: ClassVar[str] = "model"
    FORMS: ClassVar[Mapping[str, Form]] = {
        "policy": _model("a language model"),
        "value": _model("a critic: one number per token"),
        "actor_critic": _model("a language model with a second head for values", "shared_layers"),
        "reward": _model("a reward model: one number per response"),
        "process_reward": _model("a reward model: one number per token"),
        "generative_reward": Form(
            "a judge: a language model that is asked for one number per response",
            ("template", "max_tokens", "dtype"),
            "uri | init",
            needs={"template": r'"{prompt}\n{response}\nGrade from 0 to 10:"', "max_tokens": "256"},
        ),
    }
    optim = maybe(record("adamw"))
    lora = maybe(record("lora"))
    dtype = setting(word("bf16", "fp32"), "bf16")
    router_aux = maybe(FLOAT, least=0)
    shared_layers = maybe(INT, least=1)
    template = maybe(TEXT)
    max_tokens = maybe(INT, least=1)

    def rules(self) -> Iterator[Violation]:
        if self.template is not None:
            yield from template_rules(self.text_of("template"))
        if self.initial is not None:
            yield from self._initial_rules(self.initial)
        yield from enough_layers(self, self.title)
        yield from endless_warmup(self, self.title)
        step = step_of(self)
        if self.optim is not None and step is not None and not _changes(step, self.title):
            yield Violation(
                "optimizer-without-update",
                f"`{self.title}` has an optimizer but no step makes {self.title}@"
                f"{index_of(step)}+1: add an update, or remove optim",
            )

    def _initial_rules(self, name: str) -> Iterator[Violation]:
        above = takewhile(lambda other: other is not self, declarations(self))
        source = next((o for o in above if isinstance(o, ModelOp) and o.title == name), None)
        if source is None:
            yield Violation("undeclared", f"`{name}` is not a model declared above")
        elif (_dtype(self), _dtype(source)) == ("bf16", "fp32"):
            yield Violation(
                "rounded-copy",
                f"`{self.title}` rounds the weights of `{name}`, which are fp32, to bf16: write "
                "dtype=fp32 to keep them",
                severity="note",
            )


def _dtype(model: ModelOp) -> str | None:
    held = model.properties.get("dtype")
    return held.data if isinstance(held, StringAttr) else None


def _changes(step: Operation, model: str) -> bool:
    """Whether a step ends with other weights of a model than it starts with."""
    block = step.regions[0].block
    ends = block.last_op.operands if block.last_op is not None else ()
    states = zip(block.args, ends, strict=False)
    return any(
        isinstance(start.type, WeightsType) and start.type.owner == model and start is not end
        for start, end in states
    )


@irdl_op_definition
class DataOp(DeclareOp):
    """A data set."""

    name = "rpeg.data"
    KIND: ClassVar[str] = "data"
    FORMS: ClassVar[Mapping[str, Form]] = {
        "prompts": Form("prompts, with what their verifier needs", ("split", "seed", "limit")),
        "demos": Form("prompts with completions to imitate", ("split", "seed", "limit")),
        "pairs": Form("prompts with a chosen and a rejected response", ("split", "seed", "limit")),
    }
    split = maybe(TEXT)
    seed = setting(INT, 0)
    limit = maybe(INT, least=1)


_OVERLONG = "rule:overlong"
_LENGTHS = ("soft", "max")
"""Settings of that rule alone."""


@irdl_op_definition
class VerifierOp(DeclareOp):
    """A function that scores responses."""

    name = "rpeg.verifier"
    KIND: ClassVar[str] = "verifier"
    FORMS: ClassVar[Mapping[str, Form]] = {
        "outcome": Form("one reward per response", ("timeout", "soft", "max")),
        "process": Form("one reward per token", ("timeout",)),
    }
    timeout = setting(DURATION, SecondsAttr.of(10.0), least=0.001)
    soft = maybe(INT, least=0)
    max = maybe(INT, least=1)

    def rules(self) -> Iterator[Violation]:
        given = [name for name in _LENGTHS if name in self.properties]
        if self.uri != _OVERLONG:
            for name in given:
                text = f"{self.uri} has no setting `{name}`: it is for {_OVERLONG}"
                yield Violation("unknown-setting", text, violations.setting(name))
        elif len(given) < len(_LENGTHS):
            yield Violation(
                "missing-setting",
                f"{_OVERLONG} needs both bounds, in tokens: write soft=384, max=512",
                violations.setting("source"),
            )
        elif self.int_of("soft") >= self.int_of("max"):
            yield Violation(
                "setting-range",
                f"soft={self.int_of('soft')}: expected below max={self.int_of('max')}: the "
                "penalty grows between the two",
                violations.setting("soft"),
            )


@irdl_op_definition
class ToolOp(DeclareOp):
    """Something that a policy may call while it generates."""

    name = "rpeg.tool"
    KIND: ClassVar[str] = "tool"
    FORMS: ClassVar[Mapping[str, Form]] = {
        "function": Form("a function of a text", ("timeout",)),
        "environment": Form(
            "an environment with state", ("timeout",), defaults={"timeout": SecondsAttr.of(60.0)}
        ),
    }
    timeout = setting(DURATION, SecondsAttr.of(10.0), least=0.001)

    def rules(self) -> Iterator[Violation]:
        sound = self.uri is not None and source_problem(self.KIND, self.uri) is None
        problem = tool_source(self.form_name, self.uri) if sound and self.uri else None
        if problem is not None:
            yield Violation("bad-source", problem, violations.setting("source"))


@irdl_op_definition
class StateOp(DeclareOp):
    """A number that crosses steps."""

    name = "rpeg.state"
    KIND: ClassVar[str] = "state"
    FORMS: ClassVar[Mapping[str, Form]] = {"scalar": Form("one number", ("init",), "")}
    init = required(FLOAT, "0.001", least=0)


@irdl_op_definition
class ExpectOp(CheckedOp):
    """What to expect, for planning only: `rpeg.expect "y" #rpeg.record<lognormal, {...}>`."""

    name = "rpeg.expect"
    WITHIN: ClassVar[str] = "rpeg.pipeline"
    target = prop_def(StringAttr)
    distribution = prop_def(RecordAttr)
    assembly_format = "$target qualified($distribution) attr-dict"

    def rules(self) -> Iterator[Violation]:
        unfit = list(known_record_violations(self.distribution, EXPECT, "a distribution"))
        yield from unfit
        if self.distribution.kind in EXPECT:
            yield from expectation_violations(
                self, self.target.data, self.distribution, sound=not unfit
            )


DECLARE: tuple[type[DeclareOp], ...] = (ModelOp, DataOp, VerifierOp, ToolOp, StateOp)
OPS: tuple[type[CheckedOp], ...] = (PipelineOp, *DECLARE, ExpectOp)
