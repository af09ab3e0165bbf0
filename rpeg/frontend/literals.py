"""What literals stand for: texts with escapes, whole numbers, numbers, quantities with a unit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

Dimension = Literal["time", "memory"]

UNITS: dict[str, tuple[Dimension, Fraction]] = {
    "us": ("time", Fraction(1, 1_000_000)),
    "ms": ("time", Fraction(1, 1000)),
    "s": ("time", Fraction(1)),
    "min": ("time", Fraction(60)),
    "h": ("time", Fraction(3600)),
    "KiB": ("memory", Fraction(2**10)),
    "MiB": ("memory", Fraction(2**20)),
    "GiB": ("memory", Fraction(2**30)),
}
"""Unit -> what it measures, and its size in seconds or bytes."""

LARGEST = 2**63 - 1
"""Whole numbers fit in 64 bits."""

_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "t": "\t"}
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))")
_QUANTITY = re.compile(r"([0-9_.]+)([A-Za-z]+)")
_UNENCODED = re.compile(r'["\\\x00-\x1f\x7f-\x9f\u2028\u2029]')


@dataclass(frozen=True)
class Quantity:
    """An amount in seconds (time) or bytes (memory)."""

    dimension: Dimension
    amount: Fraction


def decode(text: str) -> str:
    """The value of a text literal, given with its quotes. Its escapes are known to be good."""
    return _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else _ESCAPES[m[2]], text[1:-1])


def encode(value: str) -> str:
    """The text literal, quotes included, that `decode` turns into `value`."""
    return f'"{_UNENCODED.sub(lambda m: _escaped(m[0]), value)}"'


def whole(text: str) -> int:
    """The value of a whole number, such as `16_384` or `-1`."""
    return int(text.replace("_", ""))


def number(text: str) -> float:
    """The value of a number or whole number, such as `3e-4`."""
    return float(text.replace("_", ""))


def quantity(text: str) -> Quantity:
    """The value of a quantity, such as `30ms`. Its unit is known to exist."""
    digits, unit = _digits_and_unit(text)
    dimension, size = UNITS[unit]
    return Quantity(dimension, digits * size)


def faults(kind: str, text: str) -> Iterator[tuple[int, str]]:
    """What is wrong inside a token of this terminal: offsets in it, and messages."""
    match kind:
        case "STRING":
            yield from _escape_faults(text)
        case "INT" if len(text) > 40 or whole(text) > LARGEST:
            yield 0, "a whole number has at most 64 bits"
        case "FLOAT" if number(text) == float("inf"):
            yield 0, "the number is too large"
        case "QUANTITY":
            yield from _quantity_faults(text)


def _escape_faults(text: str) -> Iterator[tuple[int, str]]:
    for match in _ESCAPE.finditer(text):
        if match[1] and 0xD800 <= int(match[1], 16) <= 0xDFFF:
            yield match.start(), f"`{match[0]}` is not a character: write the character itself"
        elif match[2] and match[2] not in _ESCAPES:
            known = r"\" \\ \n \t \uXXXX"
            yield match.start(), f"`{match[0]}` has no meaning in a text: known are {known}"


def _quantity_faults(text: str) -> Iterator[tuple[int, str]]:
    if len(text) > 40:
        yield 0, "a quantity has at most 64 bits"
        return
    digits, unit = _digits_and_unit(text)
    if unit in "kK":
        yield 0, f"`{text}` is ambiguous: write {int(digits * 1024)} or {int(digits * 1000)}"
    elif unit in "eE":
        yield 0, f"a number ends with its exponent, and nothing behind it: {text}-4"
    elif unit not in UNITS:
        known = "times are us ms s min h, sizes KiB MiB GiB, everything else is a plain number"
        yield 0, f"`{unit}` is not a unit: {known}"
    elif digits * UNITS[unit][1] > LARGEST:
        yield 0, "a quantity has at most 64 bits"


def _digits_and_unit(text: str) -> tuple[Fraction, str]:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text} is not a quantity")
    return Fraction(match[1].replace("_", "")), match[2]


def _escaped(character: str) -> str:
    short = {value: key for key, value in _ESCAPES.items()}.get(character)
    return f"\\{short}" if short else f"\\u{ord(character):04x}"
