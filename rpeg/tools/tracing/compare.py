"""Two traces against each other: seconds per step of every stage, the biggest gaps first."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from rpeg.tools.tracing.read import Trace


@dataclass(frozen=True)
class Gap:
    """Seconds per step, predicted and measured; None where a trace has no such stage."""

    name: str
    predicted: float | None
    measured: float | None

    @property
    def seconds(self) -> float:
        """Measured less predicted; a stage that a trace doesn't have takes no time in it."""
        return (self.measured or 0.0) - (self.predicted or 0.0)

    @property
    def ratio(self) -> float | None:
        """Measured over predicted."""
        if self.measured is None or not self.predicted:
            return None
        return self.measured / self.predicted

    def to_json(self) -> dict[str, Any]:
        """As `--json` has it."""
        return {
            "name": self.name,
            "predicted_s": self.predicted,
            "measured_s": self.measured,
            "gap_s": self.seconds,
            "ratio": self.ratio,
        }


@dataclass(frozen=True)
class Comparison:
    """How far a measured trace is from a predicted one."""

    step: Gap
    """From the end of one step to the end of the next."""
    stages: tuple[Gap, ...]
    """Those that differ most come first."""
    steps: tuple[int, int]
    """How many steps of each trace count."""

    def to_json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "steps": dict(zip(("predicted", "measured"), self.steps, strict=True)),
            "step": self.step.to_json(),
            "stages": [gap.to_json() for gap in self.stages],
        }


def compare(predicted: Trace, measured: Trace, skip: int | None) -> Comparison:
    """Medians over the steps of each trace after its first `skip`, of which each has more; None
    skips one where a trace has more than that.
    """
    names = dict.fromkeys([*predicted.stages, *measured.stages])
    gaps = [
        Gap(name, _stage_seconds(predicted, name, skip), _stage_seconds(measured, name, skip))
        for name in names
    ]
    return Comparison(
        step=Gap("step", _step_seconds(predicted, skip), _step_seconds(measured, skip)),
        stages=tuple(sorted(gaps, key=lambda gap: -abs(gap.seconds))),
        steps=(len(_counted(predicted.steps, skip)), len(_counted(measured.steps, skip))),
    )


def _stage_seconds(trace: Trace, name: str, skip: int | None) -> float | None:
    """The median over the steps that have the stage; None where none of them has."""
    by_step = trace.stages.get(name, {})
    seconds = [by_step[step] for step in _counted(trace.steps, skip) if step in by_step]
    return statistics.median(seconds) if seconds else None


def _step_seconds(trace: Trace, skip: int | None) -> float:
    ends = [trace.begin, *trace.steps.values()]
    seconds = dict(zip(trace.steps, (b - a for a, b in pairwise(ends)), strict=True))
    return statistics.median(seconds[step] for step in _counted(trace.steps, skip))


def _counted(steps: Iterable[int], skip: int | None) -> list[int]:
    every = list(steps)
    return every[skip:] if skip is not None else every[1:] or every
