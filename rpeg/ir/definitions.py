"""How a class defines an operation: its operands, results and settings, each on a line.

    class KlLossOp(LossOp):
        trajectories = operand("traj")
        reference = operand("tok.logprob")
        coef = required(FLOAT, "0.001", least=0)
        loss = gives("loss")

Each is an IRDL definition of xDSL; its constraint also holds what the surface, the messages and the
documentation say of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, Unpack

from typing_extensions import TypeVar
from xdsl.ir import Attribute, OpResult, SSAValue
from xdsl.irdl import (
    AttrConstraint,
    IntConstraint,
    OpDef,
    OptionalDef,
    RangeLengthConstraint,
    VariadicDef,
    VerificationContext,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    var_operand_def,
)
from xdsl.utils.exceptions import VerifyException

from rpeg.ir.types.attributes import plain
from rpeg.ir.types.values import is_unknown
from rpeg.ir.vocabulary.patterns import Operand, Pattern, describe
from rpeg.ir.vocabulary.settings import ANY_NUMBER, Bounds, Kind, Range, Setting


@dataclass(frozen=True)
class Flow(AttrConstraint):
    """The type of an operand or result, as a pattern."""

    pattern: Pattern
    hidden: bool = False
    at_least_one: bool = False
    inferred: bool = False
    """A result: its type is checked against inference, and the pattern only names it."""

    def verify(self, attr: Attribute, constraint_context: VerificationContext) -> None:
        if not self.inferred and not is_unknown(attr) and not self.pattern.takes(attr):
            raise VerifyException(f"expected {self.pattern.noun}, found {describe(attr)}")

    def mapping_type_vars(
        self, type_var_mapping: Mapping[TypeVar, AttrConstraint | IntConstraint]
    ) -> Self:
        return self


@dataclass(frozen=True)
class Held(AttrConstraint):
    """The attribute of a setting."""

    kind: Kind
    default: Attribute | None = None
    required: bool = False
    range: Range = ANY_NUMBER
    usual: str = ""

    def verify(self, attr: Attribute, constraint_context: VerificationContext) -> None:
        if not self.kind.accepts(attr):
            raise VerifyException(f"expected {self.kind.noun}, found {attr}")

    def mapping_type_vars(
        self, type_var_mapping: Mapping[TypeVar, AttrConstraint | IntConstraint]
    ) -> Self:
        return self


def operand(pattern: str) -> SSAValue:
    """One operand of the surface."""
    return operand_def(Flow(Pattern.parse(pattern)))


def optional(pattern: str) -> SSAValue | None:
    """A last operand that may be absent."""
    return opt_operand_def(Flow(Pattern.parse(pattern)))


def many(pattern: str, *, at_least_one: bool = False) -> Sequence[SSAValue]:
    """Any number of last operands."""
    return var_operand_def(Flow(Pattern.parse(pattern), at_least_one=at_least_one))


def hidden(pattern: str) -> SSAValue:
    """An operand without a surface."""
    return operand_def(Flow(Pattern.parse(pattern), hidden=True))


def hidden_optional(pattern: str) -> SSAValue | None:
    """An operand without a surface that may be absent."""
    return opt_operand_def(Flow(Pattern.parse(pattern), hidden=True))


def gives(pattern: str) -> OpResult:
    """One result."""
    return result_def(Flow(Pattern.parse(pattern), inferred=True))


def hidden_result(pattern: str) -> OpResult:
    """A result without a surface."""
    return result_def(Flow(Pattern.parse(pattern), hidden=True, inferred=True))


def required(kind: Kind, usual: str = "", **bounds: Unpack[Bounds]) -> Attribute:
    """A setting that every use gives; `usual` is what a message offers where it is missing."""
    return prop_def(Held(kind, None, True, Range(**bounds), usual))


def setting(
    kind: Kind,
    default: bool | int | float | str | Attribute,
    *,
    name: str | None = None,
    **bounds: Unpack[Bounds],
) -> Attribute:
    """A setting with a default, which belongs to the language version."""
    held = default if isinstance(default, Attribute) else plain(default)
    return prop_def(Held(kind, held, False, Range(**bounds)), prop_name=name)


def maybe(kind: Kind, **bounds: Unpack[Bounds]) -> Attribute | None:
    """A setting that may be absent."""
    return opt_prop_def(Held(kind, None, False, Range(**bounds)))


def flow_of(definition: Any) -> Flow:
    """The constraint of an operand or result, by its definition."""
    constraint = definition.constr
    while not isinstance(constraint, Flow):  # xDSL wraps it in constraints on the number
        inner = "constraint" if isinstance(constraint, RangeLengthConstraint) else "constr"
        constraint = getattr(constraint, inner)
    return constraint


def operand_of(name: str, definition: Any) -> Operand:
    """An operand as the surface has it, by its definition."""
    flow = flow_of(definition)
    plural = isinstance(definition, VariadicDef) and not isinstance(definition, OptionalDef)
    absent = isinstance(definition, OptionalDef) or (plural and not flow.at_least_one)
    return Operand(name, flow.pattern, plural, absent)


def settings_of(definition: OpDef) -> dict[str, Setting]:
    """The settings of an operation by name, in the order of its definition."""
    held = ((name, prop.constr) for name, prop in definition.properties.items())
    return {
        name: Setting(name, c.kind, c.default, c.required, c.range, c.usual)
        for name, c in held
        if isinstance(c, Held)
    }
