"""A whole validation: predict every record, with the shipped constants and without its source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rpeg.cost.validation.eras import Eras, Timed, fit, shipped_eras
from rpeg.cost.validation.predictions import Outcome, outcomes, timings
from rpeg.cost.validation.rows import Row, read_rows

SHIPPED_ROWS = Path(__file__).parents[1] / "data" / "rows"


@dataclass(frozen=True)
class Validation:
    """Predictions of some records."""

    rows: Sequence[Row]
    eras: Eras
    outcomes: Sequence[Outcome]
    """With the shipped constants."""
    left_out: Sequence[Outcome]
    """Each with constants fitted to every record but its source's."""
    fitted: Eras
    """Constants that all the records together give."""


def validate(folder: Path | None) -> Validation:
    """The records below a folder, or the shipped ones. Raises RowError."""
    rows = read_rows(folder or SHIPPED_ROWS)
    times = timings(rows)
    known = {**_shipped_times(folder, times), **times}
    eras = shipped_eras()
    sources = {row.source for row in rows}
    without = {name: fit(t for t in known.values() if t.source != name) for name in sources}
    return Validation(
        rows=rows,
        eras=eras,
        outcomes=[o for row in rows for o in outcomes(row, eras, times.get(row.id))],
        left_out=[o for row in rows for o in outcomes(row, without[row.source], times.get(row.id))],
        fitted=fit(known.values()),
    )


def _shipped_times(folder: Path | None, times: dict[str, Timed]) -> dict[str, Timed]:
    """Shipped records that are not among the given ones help to fit what is left out."""
    if folder is None:
        return {}
    return timings(row for row in read_rows(SHIPPED_ROWS) if row.id not in times)
