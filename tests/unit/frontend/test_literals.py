"""Literals and what they stand for."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpeg.frontend.literals import Quantity, decode, encode, faults, number, quantity, whole


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('""', ""),
        (r'"a\"b\\c"', r"a\"b\c".replace(r"\"", '"')),
        (r'"\n\t"', "\n\t"),
        (r'"\u00e9\\u0041"', r"é\u0041"),
    ],
)
def test_decode(text: str, value: str) -> None:
    assert decode(text) == value


@given(st.text())
def test_encode_is_the_inverse(value: str) -> None:
    text = encode(value)
    assert decode(text) == value
    assert list(faults("STRING", text)) == []
    assert len(text.splitlines()) == 1


def test_numbers() -> None:
    assert (whole("16_384"), whole("-1")) == (16384, -1)
    assert (number("3e-4"), number("-1_000.5")) == (3e-4, -1000.5)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10s", Quantity("time", Fraction(10))),
        ("1.5min", Quantity("time", Fraction(90))),
        ("30ms", Quantity("time", Fraction(3, 100))),
        ("512MiB", Quantity("memory", Fraction(512 * 2**20))),
        ("0.5KiB", Quantity("memory", Fraction(512))),
    ],
)
def test_quantities(text: str, value: Quantity) -> None:
    assert quantity(text) == value


def test_what_is_no_quantity() -> None:
    with pytest.raises(ValueError, match="12 is not a quantity"):
        quantity("12")
