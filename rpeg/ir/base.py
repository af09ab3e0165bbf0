"""The base of every L0 operation: derived signature, checks, text form.

An operation is defined once, as a class; its surface signature, its messages, its documentation
and its assembly follow from the definition. Hidden operands and results (optimizer state, data
cursors) have no surface: the front end threads them.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import ClassVar, Self, cast

from xdsl.dialects.builtin import LocationAttr
from xdsl.ir import Attribute, Operation, OpResult, Region, SSAValue, SSAValues
from xdsl.irdl import IRDLOperation
from xdsl.parser import Parser
from xdsl.printer import Printer

from rpeg.ir.declared import enclosing, index_of
from rpeg.ir.definitions import Flow, flow_of, operand_of, settings_of
from rpeg.ir.rules import violations
from rpeg.ir.rules.codes import Code
from rpeg.ir.rules.settings import setting_violations
from rpeg.ir.rules.violations import RuleBroken, Violation
from rpeg.ir.text.assembly import parse_settings, parse_values, print_settings
from rpeg.ir.text.naming import name_of, shown, trajectories_of
from rpeg.ir.types.flow import ScopedType
from rpeg.ir.types.values import NEXT, StateType, UnknownType, WeightsType, is_unknown
from rpeg.ir.vocabulary.patterns import Operand, describe
from rpeg.ir.vocabulary.settings import Python, Setting, python_value
from rpeg.ir.vocabulary.signature import SCOPES, Scope, Signature


class CheckedOp(IRDLOperation):
    """An operation that lists every rule it breaks, not only the first."""

    WITHIN: ClassVar[str] = ""
    """The operation that must be around it, near or far."""
    SOUND: ClassVar["CheckedOp | None"] = None
    """The operation that was just found to be without errors: `verify_` need not ask it again."""

    # ---- settings

    @classmethod
    @cache
    def setting_table(cls) -> Mapping[str, Setting]:
        """The settings by name, in the order of the definition."""
        return settings_of(cls.get_irdl_definition())

    def value(self, name: str) -> Python:
        """A setting as a plain Python value; None if absent."""
        return python_value(self.properties.get(name))

    def int_of(self, name: str) -> int:
        """A whole-number setting."""
        return cast(int, self.value(name))

    def float_of(self, name: str) -> float:
        """A number setting."""
        return cast(float, self.value(name))

    def text_of(self, name: str) -> str:
        """A text or word setting."""
        return cast(str, self.value(name))

    # ---- rules

    def violations(self) -> Iterator[Violation]:
        """Every broken rule."""
        return self.rules()

    def rules(self) -> Iterator[Violation]:
        """Rules of this operation about meaning."""
        return iter(())

    def verify_(self) -> None:
        if CheckedOp.SOUND is self:
            return
        broken = next((v for v in self.violations() if v.severity == "error"), None)
        if broken is not None:
            raise RuleBroken(broken)


class RpegOp(CheckedOp):
    """An operation of L0 that the surface writes `results = name(things..., setting=value...)`."""

    WITHIN: ClassVar[str] = "rpeg.step"
    SURFACE: ClassVar[str] = ""
    """Its name in the language."""
    SCOPE: ClassVar[Scope] = "sample"
    """The smallest unit on which it is a pure map: streaming may not go below it."""
    PLACED: ClassVar[bool] = False
    """It costs something, so a plan has a line for it."""
    REGION: ClassVar[bool] = False
    """The surface follows it with `{ ... }`."""
    READS_OLD: ClassVar[bool] = False
    """It may read weights older than this step's."""
    READS_NEXT: ClassVar[bool] = False
    """It may read the version that the step ends with."""
    LAGGED: ClassVar[Code] = "stale-read"
    """The rule that it breaks where it reads older weights and may not."""
    TWO_BATCHES: ClassVar[bool] = False
    """Its operands may belong to different trajectories; a rule of its own says to which."""
    LENIENT: ClassVar[bool] = False
    """Its rules hold even where an operand's definition has an error."""

    # ---- building

    @classmethod
    def make(
        cls,
        operands: Sequence[SSAValue],
        settings: Mapping[str, Attribute] | None = None,
        regions: Sequence[Region] = (),
        attributes: Mapping[str, Attribute] | None = None,
        location: LocationAttr | None = None,
    ) -> Self:
        """The operation with inferred result types; UnknownType where an operand does not fit."""
        op = cls.create(
            operands=operands,
            properties=dict(settings or {}),
            attributes=dict(attributes or {}),
            regions=regions,
            location=location,
        )
        types = op.infer_or_unknown()
        op.results = SSAValues(OpResult(t, op, index) for index, t in enumerate(types))
        return op

    def infer_or_unknown(self) -> Sequence[Attribute]:
        """Inferred result types, or UnknownType for each where operands or settings do not fit."""
        sound = not any(is_unknown(v.type) for v in self.operands)
        if sound and next(self.misfits(), None) is None:
            return self.inferred()
        return [UnknownType()] * self.result_count()

    def infer(self) -> Sequence[Attribute]:
        """Types of the results, from operands and settings that fit the signature."""
        return ()

    def inferred(self) -> Sequence[Attribute]:
        """Types of the results; the unit of a field is no smaller than those of its operation and
        operands.
        """
        units = [v.type.scope for v in self.operands if isinstance(v.type, ScopedType)]
        widest = max((self.SCOPE, *units), key=SCOPES.index)
        return [t.over(widest) if isinstance(t, ScopedType) else t for t in self.infer()]

    def result_count(self) -> int:
        """How many results there are, hidden ones included."""
        return len(self.get_irdl_definition().results)

    @classmethod
    def complete(cls, operands: Sequence[SSAValue], settings: dict[str, Attribute]) -> None:
        """Fills in defaults that depend on the operands."""

    # ---- signature

    @property
    def word(self) -> str:
        """What a message calls it: its name in the language, or in the IR where it has none."""
        return self.SURFACE or self.name

    @classmethod
    def signature(cls) -> Signature:
        """The surface signature, derived from the definition."""
        definition = cls.get_irdl_definition()
        results = [flow_of(d) for _, d in definition.results]
        return Signature(
            cls.SURFACE,
            (cls.__dict__.get("__doc__") or "").strip(),
            tuple(operand_of(n, d) for n, d in definition.operands if not flow_of(d).hidden),
            tuple(f.pattern.noun for f in results if not f.hidden),
            cls.setting_table(),
            cls.SCOPE,
            cls.PLACED,
            cls.REGION,
        )

    @classmethod
    @cache
    def operand_flows(cls) -> Mapping[str, Flow]:
        """The constraints of the operands by name, in order."""
        return {name: flow_of(d) for name, d in cls.get_irdl_definition().operands}

    @classmethod
    @cache
    def needed_operands(cls) -> Sequence[Operand]:
        """The operands that may not be absent, hidden ones included."""
        table = (operand_of(n, d) for n, d in cls.get_irdl_definition().operands)
        return [operand for operand in table if not operand.optional]

    # ---- checks

    def violations(self) -> Iterator[Violation]:
        """Every misfit with the signature; without one, every broken rule. Rules are not applied
        where an operand's definition already has an error.
        """
        misfits = list(self.misfits())
        yield from misfits
        unknown = any(is_unknown(v.type) for v in self.operands)
        if misfits or (unknown and not self.LENIENT):
            return
        broken = [
            *self._next_rules(),
            *self._version_rules(),
            *self._same_trajectories(),
            *self.rules(),
        ]
        yield from broken or self._result_types()

    def misfits(self) -> Iterator[Violation]:
        """Operands and settings that do not fit the signature."""
        yield from self._operand_misfits()
        table = self.setting_table()
        others = self.get_irdl_definition().properties.keys() - table.keys()
        given = {k: v for k, v in self.properties.items() if k not in others}
        yield from setting_violations(self.word, table, given)

    def _operand_misfits(self) -> Iterator[Violation]:
        for index, (name, value, flow) in enumerate(self.flows()):
            if is_unknown(value.type) or flow.pattern.takes(value.type):
                continue
            found = describe(value.type)
            yield Violation(
                "operand-kind",
                f"{self.word} takes {flow.pattern.noun} as `{name}`; `{shown(value)}` is {found}",
                violations.operand(index),
            )

    def flows(self) -> Iterator[tuple[str, SSAValue, Flow]]:
        """(operand name, value, constraint) of each operand."""
        for name, flow in self.operand_flows().items():
            group = getattr(self, name)
            values = [group] if isinstance(group, SSAValue) else list(group or ())
            for value in values:
                yield name, value, flow

    def _next_rules(self) -> Iterator[Violation]:
        if self.READS_NEXT:
            return
        for index, value in enumerate(self.operands):
            if not is_next(value):
                continue
            held, now = value.type, index_name(self)
            scalar = held.symbol if isinstance(held, StateType) else ""
            use = "for the next step" if scalar else "to be measured, copied and exported"
            yield Violation(
                "used-after-yield",
                f"{self.word} reads {scalar or name_of(value)}@{now}+1, which this step ends with: "
                f"read {scalar or name_of(value)}@{now}; the new version is {use}",
                violations.operand(index),
            )

    def _version_rules(self) -> Iterator[Violation]:
        for index, value in enumerate(self.operands):
            if isinstance(value.type, WeightsType) and value.type.lag[1] > 0 and not self.READS_OLD:
                now = f"{value.type.owner}@{index_name(self)}"
                yield Violation(
                    self.LAGGED,
                    f"only generate may read older weights; {self.word} reads {now}",
                    violations.operand(index),
                )

    def _same_trajectories(self) -> Iterator[Violation]:
        first: SSAValue | None = None
        for index, value in enumerate(self.operands):
            mine = trajectories_of(value)
            first = first or mine
            if mine is None or mine is first or self.TWO_BATCHES:
                continue
            assert first is not None
            yield Violation(
                "mixed-trajectories",
                f"`{name_of(value)}` belongs to the trajectories `{name_of(mine)}`, "
                f"the operands before it to `{name_of(first)}`",
                violations.operand(index),
            )
            return

    def _result_types(self) -> Iterator[Violation]:
        count = self.result_count()
        if len(self.results) != count:
            yield Violation(
                "result-type", f"{self.word} gives {count} results here, not {len(self.results)}"
            )
        for index, (found, wanted) in enumerate(zip(self.results, self.inferred(), strict=False)):
            if found.type != wanted and not is_unknown(found.type):
                yield Violation(
                    "result-type",
                    f"result {index + 1} is {found.type}; from its operands it is {wanted}",
                    violations.result(index),
                )

    # ---- text form: `%y, %lp = rpeg.generate %actor, %q {n = 8 : i64} attributes {stage = "y"}`

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        operands = parse_values(parser)
        cls._enough(parser, len(operands))
        settings, attributes = parse_settings(parser, cls.setting_table())
        regions = [parser.parse_region() for _ in cls.get_irdl_definition().regions]
        return cls.make(operands, settings, regions, attributes)

    @classmethod
    def _enough(cls, parser: Parser, count: int) -> None:
        """Operands are told apart by their order, so no required one may be missing."""
        needed = cls.needed_operands()
        if count < len(needed):
            missing = needed[count]
            parser.raise_error(
                f"{cls.name} needs {missing.pattern.noun} as operand {count + 1} ({missing.name})"
            )

    def print(self, printer: Printer) -> None:
        if self.operands:
            printer.print_string(" ")
            printer.print_list(self.operands, printer.print_ssa_value)
        table, always = self.setting_table(), bool(self.regions)
        print_settings(printer, self.properties, self.attributes, table, always)
        for region in self.regions:
            printer.print_string(" ")
            printer.print_region(region)


def is_next(value: SSAValue) -> bool:
    """Whether a value is the version of a state that its step ends with."""
    match value.type:
        case WeightsType() as held:
            return held.lag[0] == NEXT
        case StateType():  # as the step starts it is an argument, or declared and never changed
            return isinstance(value.owner, Operation) and value.owner.name != "rpeg.get"
        case _:
            return False


def index_name(op: Operation) -> str:
    """The name of the index of the step around an operation: `i`."""
    return index_of(enclosing(op, "rpeg.step"))
