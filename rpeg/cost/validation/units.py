"""Units that records write measured values in, as multiples of the unit that a prediction is in."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rpeg.cost.validation.rows import Unknown

TIMES = {
    1e-9: "ns nsec nanosecond nanoseconds",
    1e-6: "us µs μs usec microsecond microseconds",
    1e-3: "ms msec msecs millisecond milliseconds",
    1.0: "s sec secs second seconds",
    60.0: "min mins minute minutes",
    3600.0: "h hr hrs hour hours",
    86400.0: "d day days",
}
COUNTS = {
    "tokens": "token tokens tok toks",
    "samples": "sample samples seq seqs sequence sequences req reqs request requests",
}
SHARES = {1.0: "fraction ratio share", 0.01: "% percent"}
EACH = ("gpu", "gpus", "device", "chip", "accelerator")
"""Words for one of the GPUs that a rate or memory is of."""

PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15}
BINARY = {"ki": 2.0**10, "mi": 2.0**20, "gi": 2.0**30, "ti": 2.0**40}

QUALIFIERS = ("output", "generated", "total", "input", "average", "avg", "mean", "median")
"""Words before a unit that the quantity's name says too."""

AMBIGUOUS = ("bytes", "share")
"""What no unit may be left out of: sources write bytes or GB, fractions or percent."""


def scale(name: str, own: str, unit: str) -> float:
    """What a value in the unit `own` is multiplied by to be one in `unit`, or in that of the
    quantity's name where a record tells none. Raises Unknown for a unit of anything else.
    """
    dimension, size = _parsed(own) or ("", 1.0)
    told = unit or _of_name(name)
    if not told:
        if dimension in AMBIGUOUS:
            raise Unknown("no unit")
        return 1.0
    found = _parsed(told)
    each = _parts(told)[1] and not _parts(own)[1]
    if found is None or found[0] != dimension or (each and dimension in COUNTS):
        raise Unknown(f'unit "{unit}"')
    return size / found[1]


def _of_name(name: str) -> str:
    """The unit in a name such as latency_ms."""
    found = re.search(r"_(ns|us|ms|gb|gib|mb|mib|bytes)(?:_|$)", name.lower())
    return found[1] if found else ""


def _parts(unit: str) -> tuple[list[str], bool]:
    """A unit between its strokes, and whether it is of each GPU. What follows is a remark."""
    text = re.sub(r"\s*(?:/|\bper\b)\s*", "/", unit.strip())
    words = [word.strip(",;:") for word in re.split(r"[\s(]+", text)]
    first = next((word for word in words if word.lower() not in QUALIFIERS), "")
    parts = first.split("/")
    kept = [part for part in parts if part.lower() not in EACH]
    return kept, len(kept) < len(parts)


def _parsed(unit: str) -> tuple[str, float] | None:
    """Dimension and size of a unit; None of a text that is none."""
    first, *over = _parts(unit)[0] or [""]
    word = first.lower()
    if (seconds := _named(TIMES, word)) is not None:
        return "time", seconds
    if (share := _named(SHARES, "%" if word.startswith("%") else word)) is not None:
        return "share", share
    if found := re.fullmatch(r"([gtp])flop(?:s|ps)?", word):
        return None if over not in ([], ["s"]) else ("flop/s", PREFIXES[found[1]])
    rate = _named(TIMES, over[0].lower()) if len(over) == 1 else None
    for dimension, names in COUNTS.items():
        if word in names.split() and rate:
            return dimension, 1.0 / rate
    if (size := _bytes(first)) is None or (over and rate is None):
        return None
    per_second = first.endswith("ps")
    return ("bytes/s", size / (rate or 1.0)) if rate or per_second else ("bytes", size)


def _bytes(word: str) -> float | None:
    """Of GB, GiB, Gb, gbps, ...: a small b is a bit beside a capital prefix, or before ps."""
    if word.lower() in ("b", "byte", "bytes"):
        return 1.0
    found = re.fullmatch(r"([kmgt]i?)(b|bits?)(ps)?", word, re.IGNORECASE)
    if found is None:
        return None
    prefix, letter = found[1], found[2]
    bits = len(letter) > 1 or (letter == "b" and (prefix[0].isupper() or found[3]))
    return {**PREFIXES, **BINARY}[prefix.lower()] / (8.0 if bits else 1.0)


def _named(table: Mapping[float, str], word: str) -> float | None:
    return next((size for size, names in table.items() if word in names.split()), None)
