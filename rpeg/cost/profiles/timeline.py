"""Memory over one period in the steady state.

The steps follow one another, so what a step does later than a period after its start runs beside
the next step's beginning: spans are folded into one period, and what lies there at once is summed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rpeg.cost.estimate import TaskSpan
from rpeg.cost.profiles.footprint import Footprint


@dataclass(frozen=True)
class Moment:
    """From `start_s` on, until the next one."""

    start_s: float
    stages: frozenset[str]
    """What runs, on whatever resource."""
    running: str | None
    """The stage that has the pool."""


def moments(spans: Sequence[TaskSpan], pool: str, period_s: float) -> list[Moment]:
    """One period, cut wherever a stage starts or ends; at least one moment."""
    folded = [piece for span in spans for piece in _folded(span, period_s)]
    cuts = {0.0, *(t for start, end, _ in folded for t in (start, end) if t < period_s)}
    return [_moment(start, folded, pool) for start in sorted(cuts)]


def peak(held: Footprint, period: Iterable[Moment]) -> Moment:
    """The first moment at which most is held."""
    return max(period, key=lambda moment: held.total(moment.stages))


def over_time(held: Footprint, period: Iterable[Moment]) -> Iterator[tuple[float, float]]:
    """(seconds, bytes) wherever what is held changes."""
    before = None
    for moment in period:
        size = held.total(moment.stages)
        if size != before:
            yield moment.start_s, size
        before = size


_Piece = tuple[float, float, TaskSpan]


def _folded(span: TaskSpan, period_s: float) -> Iterator[_Piece]:
    """A span's part, or parts, of one period."""
    if span.end_s <= span.start_s or period_s <= 0.0:
        return
    start = span.start_s % period_s
    end = start + min(span.end_s - span.start_s, period_s)
    yield start, min(end, period_s), span
    if end > period_s:
        yield 0.0, end - period_s, span


def _moment(start: float, folded: Sequence[_Piece], pool: str) -> Moment:
    now = [span for first, last, span in folded if first <= start < last]
    here = (span.stage for span in now if span.resource == pool)
    stages = frozenset(span.stage for span in now if span.stage is not None)
    return Moment(start, stages, next(here, None))
