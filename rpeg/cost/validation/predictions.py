"""Every quantity of a record beside what the model says, or why it says nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeGuard

import numpy as np

from rpeg.cost.arrays import Array
from rpeg.cost.generation import Engine
from rpeg.cost.training import Software
from rpeg.cost.validation import collective, facts, generate, hardware, memory, rl_step, train
from rpeg.cost.validation.eras import CANDIDATES, Eras, Timed, applied, chosen
from rpeg.cost.validation.fields import check
from rpeg.cost.validation.names import common
from rpeg.cost.validation.rows import NO_KIND, Row, Unknown
from rpeg.cost.validation.units import scale

FIELDS = {
    "train": train.FIELDS,
    "memory": memory.FIELDS,
    "generate": generate.FIELDS,
    "rl_step": rl_step.FIELDS,
    "collective": collective.FIELDS,
    "hardware": hardware.FIELDS,
}
"""What a record of each kind needs to be predicted."""

UNITS: Mapping[str, Mapping[str, str]] = {
    "train": {**train.UNITS, **memory.UNITS},
    "memory": memory.UNITS,
    "generate": generate.UNITS,
    "rl_step": rl_step.UNITS,
    "collective": collective.UNITS,
    "hardware": hardware.UNITS,
}
"""The units in which the quantities of each kind are predicted."""

MAIN = {
    "train": (
        *("step_time", "tokens_per_s", "tokens_per_s_per_gpu", "samples_per_s"),
        *("days_300B_tokens", "model_tflops_per_gpu", "hw_tflops_per_gpu", "mfu"),
    ),
    "generate": (
        *("output_tokens_per_s", "output_tokens_per_s_per_gpu", "total_tokens_per_s"),
        *("tokens_per_s", "tokens_per_s_per_gpu", "request_throughput", "end_to_end_latency"),
        *("first_token_latency", "time_per_output_token"),
    ),
    "rl_step": ("step_time",),
}
"""The quantity of a record that constants are fitted to: the first that it has."""


@dataclass(frozen=True)
class Outcome:
    """One quantity of a record."""

    row: Row
    quantity: str
    unit: str
    measured: float
    """Not a number where the record holds none."""
    predicted: float | None
    reason: str = ""
    """Why there is no prediction."""

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "id": self.row.id,
            "kind": self.row.kind,
            "quantity": self.quantity,
            "unit": self.unit,
            "measured": None if math.isnan(self.measured) else self.measured,
            "predicted": self.predicted,
            "reason": self.reason,
        }

    @property
    def error(self) -> float:
        """|predicted / measured - 1|; only where there is a prediction."""
        assert self.predicted is not None
        return abs(self.predicted / self.measured - 1.0)


def outcomes(row: Row, eras: Eras, timed: Timed | None) -> list[Outcome]:
    """All quantities of a record, at least one; `timed` is what `timing` gives for it."""
    given = {"kind": row.kind not in ("", NO_KIND), "measured": row.mapping("measured")}
    if lacking := [name for name, value in given.items() if not value]:
        return [Outcome(row, "", "", math.nan, None, f"no {', '.join(lacking)}")]
    found = []
    for name, entry in row.mapping("measured").items():
        told = entry if isinstance(entry, dict) else {"value": entry}
        value, unit = told.get("value"), _unit(told)
        if _is_measured(value):
            found.append(_outcome(row, name, unit, float(value), eras, timed))
        elif value is not None:
            found.append(Outcome(row, name, unit, math.nan, None, NO_VALUE))
    return found or [Outcome(row, "", "", math.nan, None, NO_VALUE)]


NO_VALUE = "no measured value that is a number above 0"


def _is_measured(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and value is not True and 0 < value < math.inf


def _outcome(
    row: Row, name: str, unit: str, value: float, eras: Eras, timed: Timed | None
) -> Outcome:
    if _rounding(value) > COARSE:
        return Outcome(row, name, unit, value, None, "printed so coarsely that it tells little")
    try:
        named = _named(row, name, unit)
        check(row)
        factor = _scale(row, name, unit)
        predicted = factor * _predict(row, named, eras, timed)
    except Unknown as why:
        return Outcome(row, name, unit, value, None, str(why))
    if not (math.isfinite(predicted) and predicted > 0):
        return Outcome(row, name, unit, value, None, "fields that contradict each other")
    return Outcome(row, name, unit, value, predicted)


COARSE = 0.1
"""Share of a figure that its rounding may be."""


def _rounding(value: float) -> float:
    """Half a unit of the last digit that is printed, over the figure; whole ones count as exact."""
    exponent = Decimal(repr(value)).as_tuple().exponent
    return 0.5 * 10.0 ** int(exponent) / value if value < 1.0 else 0.0


def _named(row: Row, name: str, unit: str) -> str:
    """The common name of a quantity; a collective's own are few and clear."""
    return name if row.kind in ("collective", "hardware") else common(name, unit)


def _scale(row: Row, name: str, unit: str) -> float:
    """From the unit of a prediction to the record's; 1 for what is not predicted. Raises Unknown
    for a unit of something else.
    """
    own = UNITS.get(row.kind, {}).get(_named(row, name, unit))
    return 1.0 if own is None else scale(name, own, unit)


def _predict(row: Row, name: str, eras: Eras, timed: Timed | None) -> float:
    if row.kind in ("train", "memory") and is_memory(name):
        return memory.quantity(row, name)
    simple: dict[str, Callable[[Row, str], float]] = {
        "collective": collective.quantity,
        "hardware": hardware.quantity,
    }
    if row.kind in simple:
        return simple[row.kind](row, name)
    if row.kind == "rl_step":
        return rl_step.quantity(row, name, *_rl_constants(row, eras))
    if row.kind == "memory":
        raise Unknown("times of tests of tiny models mean nothing")
    if row.kind not in FIELDS:
        raise Unknown(f"kind {row.kind}")
    if row.kind == "train" and name in train.PASSES:
        return train.one_layer(row, name)
    if timed is None:
        raise Unknown(why_untimed(row))
    seconds = applied(chosen(eras, timed.kind, timed.era), timed)
    forms = {"train": train.quantity, "generate": generate.quantity}
    return forms[row.kind](row, name, seconds)


def is_memory(name: str) -> bool:
    """Whether a quantity, by its common name, is bytes that are held."""
    return name in memory.UNITS


def era_of(row: Row) -> str:
    """The era of a record, by its kind."""
    if row.kind == "rl_step":
        return f"{row.text('framework').split(' ')[0]} {facts.precision(row)}"
    return generate.era(row) if row.kind == "generate" else facts.era(row)


def _rl_constants(row: Row, eras: Eras) -> tuple[Engine, Software]:
    """One slowdown for all phases, and the engine's time of a step."""
    era = chosen(eras, "rl_step", era_of(row))
    return rl_step.engine(row, era.second, era.slowdown), rl_step.software(era.slowdown)


def timings(rows: Iterable[Row]) -> dict[str, Timed]:
    """What constants are fitted to, by the record's id: records that have all it takes."""
    found = {}
    for row in rows:
        try:
            found[row.id] = timing(row)
        except Unknown:
            continue
    return found


def why_untimed(row: Row) -> str:
    """The reason why a record has no timing."""
    try:
        timing(row)
    except Unknown as why:
        return str(why)
    return "no time that constants could be fitted to"


def timing(row: Row) -> Timed:
    """A record's main quantity in seconds, and each candidate's. Raises Unknown."""
    if row.kind not in MAIN:
        raise Unknown(f"no time of {row.kind}")
    check(row)
    measured = row.table("measured")
    told = {
        _named(row, name, _unit(entry)): name
        for name, entry in measured.items()
        if isinstance(entry, dict)
    }
    names = [name for name in MAIN[row.kind] if name in told]
    if not names:
        raise Unknown(f"{', '.join(measured)}: not a time of a whole {row.kind}")
    name, value = _main(row, {name: told[name] for name in names})
    return Timed(row.kind, era_of(row), row.source, _seconds(row, name, value), _tried(row))


def _main(row: Row, told: Mapping[str, str]) -> tuple[str, float]:
    """The first quantity that has a value in a unit of it, and that value in the unit of its
    prediction; `told` maps to the record's names. Raises Unknown, of the first, where none has.
    """
    problems = []
    for name, theirs in told.items():
        entry = row.table("measured")[theirs]
        value = entry.get("value")
        if not _is_measured(value):
            problems.append(f"no value of {name}")
            continue
        try:
            return name, float(value) / _scale(row, theirs, _unit(entry))
        except Unknown as why:
            problems.append(str(why))
    raise Unknown(problems[0])


def _unit(entry: Mapping[str, Any]) -> str:
    """The unit of a measured value; empty where it has none."""
    return str(entry.get("unit") or "")


def _seconds(row: Row, name: str, value: float) -> float:
    """The measured time: quantities are proportional to seconds, or to their inverse."""
    if row.kind == "rl_step":
        return value
    forms = {"train": train.quantity, "generate": generate.quantity}
    one, two = (forms[row.kind](row, name, seconds) for seconds in (1.0, 2.0))
    return value / one if two > one else one / value


def _tried(row: Row) -> Array:
    """Seconds that each candidate predicts, without a slowdown."""
    second = np.asarray(CANDIDATES[row.kind])
    if row.kind == "train":
        return train.seconds(row, Software(attention=second))
    if row.kind == "generate":
        return generate.job(row).seconds(generate.engine(row, second))
    case = rl_step.job(row)
    return case.seconds(rl_step.engine(row, second), rl_step.software()).total
