"""Attributes as the surface writes them: the inverse of `rpeg.frontend.values`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from fractions import Fraction

from xdsl.dialects.builtin import ArrayAttr, FloatAttr, IntegerAttr, StringAttr
from xdsl.ir import Attribute

from rpeg.frontend import ast
from rpeg.frontend.literals import UNITS, Dimension, encode
from rpeg.ir.types.attributes import BytesAttr, RecordAttr, SecondsAttr
from rpeg.ir.vocabulary.patterns import Operand
from rpeg.ir.vocabulary.records import RECORDS
from rpeg.ir.vocabulary.settings import Kind, ListOf, Setting, Word, python_value
from rpeg.ir.vocabulary.signature import Signature


def settings(
    table: Mapping[str, Setting], given: Mapping[str, Attribute]
) -> Iterator[tuple[str, ast.Value]]:
    """The settings of a call that differ from their defaults, in the order of the signature."""
    for name, setting in table.items():
        held = given.get(name)
        if held is not None and held != setting.default:
            yield name, value(held, setting.kind)


def record(held: RecordAttr, signature: Signature) -> ast.Call:
    """A record as a call: things by the operands of its signature, then its settings."""
    things = [
        ast.Arg(None, _thing(held.settings[spec.name], spec))
        for spec in signature.operands
        if spec.name in held.settings
    ]
    named = [ast.Arg(n, v) for n, v in settings(signature.settings, held.settings)]
    return ast.Call(held.kind, (*things, *named))


def value(held: Attribute, kind: Kind) -> ast.Value:
    """A setting's value."""
    match held:
        case StringAttr():
            choice = isinstance(kind, Word)
            return ast.Ref(held.data) if choice else ast.Literal("str", encode(held.data))
        case RecordAttr():
            return record(held, RECORDS[held.kind])
        case ArrayAttr():
            assert isinstance(kind, ListOf)
            return ast.ListOf(tuple(value(item, kind.item) for item in held))
        case SecondsAttr():
            return ast.Literal("quantity", duration(held.seconds.data))
        case BytesAttr():
            return ast.Literal("quantity", size(held.count.data))
        case _:
            return _number(held)


def _number(held: Attribute) -> ast.Literal:
    plain = python_value(held)
    match held:
        case FloatAttr():
            return ast.Literal("float", number(held.value.data))
        case IntegerAttr() if isinstance(plain, bool):
            return ast.Literal("bool", str(plain).lower())
        case _:
            return ast.Literal("int", str(plain))


def number(of: float) -> str:
    """The shortest text of a number: `0.2`, `3e-4`, `1e16`."""
    text = repr(of)
    if 0 < abs(of) < 1e-3:
        return f"{Decimal(text).normalize():e}"
    digits, mark, exponent = text.partition("e")
    return f"{digits}e{int(exponent)}" if mark else digits


def duration(seconds: float) -> str:
    """A time in the largest unit that holds it as a whole number: `20ms`, `10s`."""
    for unit, length in _units("time"):
        count = round(seconds / length)
        if count and float(count * length) == seconds:
            return f"{count}{unit}"
    return f"{Decimal(repr(seconds)):f}s"


def size(count: int) -> str:
    """A size in the largest unit that holds it as a whole number: `512MiB`."""
    for unit, length in _units("memory"):
        if count and count % length == 0:
            return f"{count // int(length)}{unit}"
    return f"{Decimal(count) / 1024:f}KiB"


def _units(dimension: Dimension) -> list[tuple[str, Fraction]]:
    units = [(unit, length) for unit, (measures, length) in UNITS.items() if measures == dimension]
    return sorted(units, key=lambda pair: -pair[1])


def _thing(held: Attribute, spec: Operand) -> ast.Value:
    """A thing of a record: a range, a source, the name of a stage or a pool."""
    if isinstance(held, ArrayAttr):
        low, high = (int(str(python_value(end))) for end in held)
        return ast.Range(low, high)
    assert isinstance(held, StringAttr)
    text = spec.pattern.includes("uri")
    return ast.Literal("str", encode(held.data)) if text else ast.Ref(held.data)
