"""Numbers with their units, to three digits, as people read them."""

from __future__ import annotations

import math
from collections.abc import Sequence

Prefixes = Sequence[tuple[float, str]]

_LARGE: Prefixes = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BINARY: Prefixes = tuple((1024.0**k, f"{'KMGTP'[k - 1]}i") for k in range(5, 0, -1))
_SMALL: Prefixes = ((1.0, ""), (1e-3, "m"))


def seconds(value: float) -> str:
    """`12.3 s`, `45.6 ms`."""
    return _prefixed(value, "s", _SMALL, least=(1e-6, "µ"))


def flops(value: float) -> str:
    """`1.23 PFLOP`."""
    return _prefixed(value, "FLOP", _LARGE)


def size(value: float) -> str:
    """Bytes in powers of two, as memory is sold: `79.6 GiB`."""
    return _prefixed(value, "B", _BINARY)


def share(value: float) -> str:
    """`43.1 %`."""
    return f"{_three(100 * value)} %"


def dollars(value: float) -> str:
    """`$1.23`; parts of a cent with three digits."""
    return f"${value:,.2f}" if value >= 1 or not value else f"${_three(value)}"


def dollars_for_million(value: float) -> str:
    """Dollars of one, as what a million of them cost: `$6.10 a million`."""
    return f"{dollars(1e6 * value)} a million"


def number(value: float) -> str:
    """`1,820`."""
    return _three(value)


def count(value: float) -> str:
    """A whole number: `1,024`."""
    return f"{value:,.0f}"


def plain(value: float) -> str:
    """Shortest form, for the marks of an axis."""
    return f"{value:,g}"


def _prefixed(
    value: float, unit: str, prefixes: Prefixes, least: tuple[float, str] = (1.0, "")
) -> str:
    none = (1.0, "") if not value else least
    factor, prefix = next((p for p in prefixes if abs(value) >= p[0]), none)
    return f"{_three(value / factor)} {prefix}{unit}"


def _three(value: float) -> str:
    """Three significant digits, never an exponent."""
    if not value:
        return "0"
    digits = 2 - math.floor(math.log10(abs(value)))
    return f"{round(value, digits):,.{max(digits, 0)}f}"
