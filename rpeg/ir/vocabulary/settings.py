"""Kinds of settings: what a named value of an operation may be, and how it is held as an attribute.

A kind knows its noun for messages, an example to offer, and which attributes it takes. Words that a
kind does not list are still held as strings, so that one verifier reports them for every input.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypedDict

from xdsl.dialects.builtin import ArrayAttr, FloatAttr, IntegerAttr, StringAttr, i1
from xdsl.ir import Attribute

from rpeg.ir.types.attributes import BytesAttr, RecordAttr, SecondsAttr

Python = bool | int | float | str | tuple[object, ...] | dict[str, object] | None


@dataclass(frozen=True)
class Kind:
    """One kind of setting."""

    noun: str
    """What a message calls it: `expected a whole number`."""
    example: str
    """What a message offers to write."""
    form: type[Attribute] | None = None
    """The attribute that holds it."""

    def accepts(self, value: Attribute) -> bool:
        """Whether `value` is of this kind."""
        return self.form is not None and isinstance(value, self.form)

    @property
    def words(self) -> tuple[str, ...]:
        """The words that may stand for a value, in the order to show them."""
        return ()


@dataclass(frozen=True)
class _Integer(Kind):
    def accepts(self, value: Attribute) -> bool:
        return isinstance(value, IntegerAttr) and not _is_bool(value)


@dataclass(frozen=True)
class _Boolean(Kind):
    def accepts(self, value: Attribute) -> bool:
        return _is_bool(value)


def _is_bool(value: Attribute) -> bool:
    return isinstance(value, IntegerAttr) and value.type == i1


INT = _Integer("a whole number", "8")
FLOAT = Kind("a number", "0.2", FloatAttr)
BOOL = _Boolean("true or false", "true")
TEXT = Kind('text in "..."', '"..."', StringAttr)
DURATION = Kind("a time such as 10s", "10s", SecondsAttr)
SIZE = Kind("a size such as 512MiB", "512MiB", BytesAttr)


@dataclass(frozen=True)
class Word(Kind):
    """One of a few words; some may be records with settings of their own."""

    choices: tuple[str, ...] = ()
    records: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        return self.choices + self.records

    def accepts(self, value: Attribute) -> bool:
        if isinstance(value, RecordAttr):
            return value.kind in self.records
        return isinstance(value, StringAttr) and value.data in self.choices


def word(*choices: str, records: tuple[str, ...] = ()) -> Word:
    """A setting that takes one of `choices`, or one of `records` with its settings."""
    return Word(" | ".join(choices + records), (choices + records)[0], None, choices, records)


def record(name: str) -> Word:
    """A setting that is a group of settings, such as adamw(lr=1e-6)."""
    return Word(f"{name}(...)", f"{name}(...)", None, (), (name,))


@dataclass(frozen=True)
class ListOf(Kind):
    """A list of one kind."""

    item: Kind = TEXT

    @property
    def words(self) -> tuple[str, ...]:
        return self.item.words

    def accepts(self, value: Attribute) -> bool:
        return isinstance(value, ArrayAttr) and all(self.item.accepts(v) for v in value)


def list_of(item: Kind) -> ListOf:
    """A setting that is a list of `item`."""
    example = "[1.0, 0.1]" if item == FLOAT else f"[{item.example}]"
    return ListOf(f"a list such as {example}", example, ArrayAttr, item)


@dataclass(frozen=True)
class AnyOf(Kind):
    """Any of several kinds."""

    kinds: tuple[Kind, ...] = ()

    def accepts(self, value: Attribute) -> bool:
        return any(k.accepts(value) for k in self.kinds)


def any_of(*kinds: Kind) -> AnyOf:
    """A setting that takes any of `kinds`."""
    return AnyOf(" or ".join(k.noun for k in kinds), kinds[0].example, None, kinds)


@dataclass(frozen=True)
class OrState(Kind):
    """A number, or the value of a state such as kl@i (then an operand, not an attribute)."""


FLOAT_OR_STATE = OrState("a number or a state such as kl@i", "0.001", FloatAttr)


class Bounds(TypedDict, total=False):
    """The bounds of a `Range`, for helpers that make one."""

    least: float
    above: float
    most: float
    below: float


@dataclass(frozen=True)
class Range:
    """The numbers that a setting may be; without bounds, all that are finite."""

    least: float = -math.inf
    above: float = -math.inf
    most: float = math.inf
    below: float = math.inf

    def __contains__(self, number: float) -> bool:
        inside = self.least <= number <= self.most and self.above < number < self.below
        return inside and math.isfinite(number)

    def __str__(self) -> str:
        """`at least 0 and below 1`; empty without bounds."""
        bounds = {
            "at least": self.least,
            "above": self.above,
            "at most": self.most,
            "below": self.below,
        }
        return " and ".join(f"{k} {v:g}" for k, v in bounds.items() if math.isfinite(v))


ANY_NUMBER = Range()
MOST_WHOLE = 2**31 - 1
"""The largest count: sizes, lengths and steps fit in 32 bits. Seeds may be larger."""


@dataclass(frozen=True)
class Setting:
    """A named setting of an operation, record or clause."""

    name: str
    kind: Kind
    default: Attribute | None = None
    """Filled in by the front end; the IR holds every setting written out."""
    required: bool = False
    range: Range = ANY_NUMBER
    usual: str = ""
    """What a message offers to write where it is missing; empty for the kind's example."""

    @property
    def example(self) -> str:
        """What a message offers to write: the default, where it has one."""
        default = python_value(self.default)
        if default is not None:
            return str(default).lower() if isinstance(default, bool) else str(default)
        return self.usual or self.kind.example

    @property
    def counts(self) -> bool:
        """It is a number of things, not a seed."""
        return self.kind == INT and math.isfinite(self.range.least)

    @property
    def optional(self) -> bool:
        """It may be absent from the IR too."""
        return not self.required and self.default is None


def python_value(value: Attribute | None) -> Python:
    """The plain value that an attribute holds: seconds and bytes as numbers, records as dicts.

    Rules also meet attributes that no setting takes, before `setting-kind` refuses them: those are
    given as text.
    """
    match value:
        case None:
            return None
        case IntegerAttr():
            return bool(value.value.data) if _is_bool(value) else int(value.value.data)
        case FloatAttr():
            return float(value.value.data)
        case StringAttr():
            return str(value.data)
        case SecondsAttr():
            return value.seconds.data
        case BytesAttr():
            return value.count.data
        case ArrayAttr():
            return tuple(python_value(v) for v in value)
        case RecordAttr():
            return {"kind": value.kind, **{k: python_value(v) for k, v in value.settings.items()}}
        case _:
            return str(value)
