"""The two constants of each era, fitted to rows: medians, so that no row weighs more than another.

An era is a generation of frameworks and a precision. Its first constant is a slowdown: time over
what the model says. Its second is one of `SECOND`, by kind of measurement. For each candidate of
the second the slowdown is the median of measured over predicted; the candidate with the least mean
error stays. An era with too few rows takes what its framework has in another precision, or what
all records of its kind give together.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rpeg.cost.arrays import Array

SECOND = {"train": "attention", "generate": "sequence_s", "rl_step": "step_s"}
"""Share of the device's attention rate; host seconds per sequence and step; those per step."""

CANDIDATES: Mapping[str, tuple[float, ...]] = {
    "train": (0.3, 0.4, 0.5, 0.65, 0.8, 1.0),
    "generate": (0.0, 1e-6, 2e-6, 4e-6, 8e-6, 16e-6, 64e-6),
    "rl_step": (0.5e-3, 2e-3, 5e-3, 10e-3, 20e-3, 30e-3),
}
"""Values that are tried."""

DEFAULTS = {"train": 0.8, "generate": 4e-6, "rl_step": 5e-3}
"""Values of the second constant where nothing is known of an era."""

FEWEST = 6
"""Rows an era needs for constants of its own: two fitted to fewer follow their noise."""

MANY = 10
"""Eras from which on all rows of a kind make its common constants; of fewer, one with many rows
would stand for all.
"""

COMMON = "common"
"""What an era without constants takes: those of all records of a kind."""


@dataclass(frozen=True)
class Era:
    """The constants of one era."""

    slowdown: float
    second: float


Eras = Mapping[tuple[str, str], Era]
"""By kind and era."""


@dataclass(frozen=True)
class Timed:
    """One measured time: seconds, and what each candidate predicts without a slowdown."""

    kind: str
    era: str
    source: str
    measured: float
    predicted: Array


def fit(times: Iterable[Timed]) -> dict[tuple[str, str], Era]:
    """Constants of every era among the times, and of each kind as if it were one era.

    One source says little of others: a kind with no more than one has the slowdown of generation
    and the default of its second constant as its common ones.
    """
    groups: dict[tuple[str, str], list[Timed]] = {}
    sources: dict[str, set[str]] = {}
    for time in times:
        groups.setdefault((time.kind, time.era), []).append(time)
        groups.setdefault((time.kind, COMMON), []).append(time)
        sources.setdefault(time.kind, set()).add(time.source)
    fitted = {key: _fitted(group) for key, group in groups.items() if len(group) >= FEWEST}
    for kind in sources:
        eras = [group for (of, era), group in groups.items() if of == kind and era != COMMON]
        if len(eras) < MANY:
            fitted[kind, COMMON] = _common(kind, eras)
    usual = fitted.get(("generate", COMMON), Era(1.0, 1.0)).slowdown
    for kind, default in DEFAULTS.items():
        if len(sources.get(kind, ())) <= 1:
            fitted[kind, COMMON] = Era(usual, default)
    return fitted


def chosen(eras: Eras, kind: str, era: str) -> Era:
    """An era's constants: its own, its framework's in another precision, or the common ones."""
    if (kind, era) in eras:
        return eras[kind, era]
    framework = era.rpartition(" ")[0]
    near = [key for key in eras if key[0] == kind and key[1].rpartition(" ")[0] == framework]
    fallback = eras.get((kind, COMMON), Era(1.0, DEFAULTS[kind]))
    return eras[near[0]] if framework and near else fallback


def applied(era: Era, time: Timed) -> float:
    """What the constants make of a time, in seconds."""
    candidates = np.asarray(CANDIDATES[time.kind])
    return float(era.slowdown * np.interp(era.second, candidates, time.predicted))


def _fitted(times: list[Timed]) -> Era:
    predicted = np.log(np.stack([time.predicted for time in times]))
    ratios = np.log([time.measured for time in times])[:, None] - predicted
    middles = np.median(ratios, axis=0)
    errors = np.abs(np.exp(middles - ratios) - 1.0).mean(axis=0)
    best = int(np.argmin(errors))
    return Era(float(np.exp(middles[best])), CANDIDATES[times[0].kind][best])


def _common(kind: str, eras: list[list[Timed]]) -> Era:
    """Of an era that nothing is known of: the middle one's slowdown, however many rows each has."""
    second = DEFAULTS[kind]
    place = CANDIDATES[kind].index(second)
    ratios = [[np.log(t.measured / t.predicted[place]) for t in group] for group in eras]
    return Era(float(np.exp(np.median([np.median(each) for each in ratios]))), second)


SHIPPED = Path(__file__).parents[1] / "data" / "eras.toml"


def shipped_eras() -> dict[tuple[str, str], Era]:
    """The constants that this version ships."""
    table = tomllib.loads(SHIPPED.read_text(encoding="utf-8"))
    return {
        (kind, era): Era(constants["slowdown"], constants[SECOND[kind]])
        for kind, eras in table.items()
        for era, constants in eras.items()
    }


def as_toml(eras: Eras) -> str:
    """The text that `shipped_eras` reads."""
    lines = ["# Two constants an era, written by: rpeg validate-model --write-eras FILE", ""]
    for kind, era in sorted(eras):
        constants = eras[kind, era]
        second = f"{SECOND[kind]} = {constants.second:.6g}"
        lines.append(f'["{kind}"."{era}"]')
        lines += [f"slowdown = {constants.slowdown:.4f}", second, ""]
    return "\n".join(lines)
