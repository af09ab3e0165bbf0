"""The figures of a simulation that commands show, and their JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rpeg.cost.period.cycles import latency, period
from rpeg.cost.period.graph import Task
from rpeg.cost.simulation.run import Run
from rpeg.cost.simulation.versions import Lags, lags
from rpeg.cost.simulation.waiting import Occupation, occupations


@dataclass(frozen=True)
class StageTimes:
    """Seconds of a stage's tasks in one step: what the closed form expects, and of the steps that
    count. What takes no time is left out.
    """

    stage: str
    resource: str | None
    expected_s: float
    mean_s: float
    deviation_s: float | None
    """None of one step, as `error_s`."""


@dataclass(frozen=True)
class Simulated:
    """A pipeline's run beside its closed form. Seconds, and shares of 1."""

    steps: int
    warm: int
    """Steps before them that don't count."""
    seed: int
    period_s: float
    """Mean seconds of a step."""
    error_s: float | None
    """Standard error of that mean; None of one step, which does not tell."""
    latency_s: float
    """Of a step by itself, as the closed form has it: nothing waits for the steps before."""
    among_others_s: float
    """From a step's first start to its last end, waits for the steps before included."""
    closed_form_s: float
    at_means_s: float
    """The closed form of what tasks took on average in the simulation."""
    stages: tuple[StageTimes, ...]
    resources: Mapping[str, Occupation]
    lags: Mapping[str, Lags]

    @property
    def gap(self) -> float:
        """How much longer a simulated step takes than the closed form says."""
        return self.period_s / self.closed_form_s - 1.0

    @property
    def of_tasks(self) -> float:
        """The part of the gap that is there since tasks take longer or shorter than expected."""
        return self.at_means_s / self.closed_form_s - 1.0

    @property
    def of_waiting(self) -> float:
        """The rest: what varies makes others wait."""
        return (self.period_s - self.at_means_s) / self.closed_form_s

    def to_json(self) -> dict[str, Any]:
        """All figures as plain lists and objects; keys are the names here."""
        gaps = {"gap": self.gap, "of_tasks": self.of_tasks, "of_waiting": self.of_waiting}
        table: dict[str, Any] = json.loads(json.dumps({**asdict(self), **gaps}))
        return table


def summary(run: Run, seed: int, ahead: Mapping[str, int]) -> Simulated:
    """What a run came to; `ahead` tells by label how many steps ahead of its turn a task runs."""
    return Simulated(
        run.steps - run.warm,
        run.warm,
        seed,
        run.period,
        run.error,
        latency(run.graph),
        run.latency,
        period(run.graph),
        period(run.means),
        tuple(_stages(run)),
        occupations(run),
        lags(run, ahead),
    )


def _stages(run: Run) -> Iterator[StageTimes]:
    took = (run.end - run.start)[:, run.warm :]
    for (stage, resource), tasks in _by_stage(run).items():
        each = took[[run.row(task.name) for task in tasks]].sum(axis=0)
        expected = sum(task.seconds for task in tasks)
        if expected > 0.0:
            deviation = float(each.std()) if len(each) > 1 else None
            yield StageTimes(stage, resource, expected, float(each.mean()), deviation)


def _by_stage(run: Run) -> dict[tuple[str, str | None], list[Task]]:
    found: dict[tuple[str, str | None], list[Task]] = {}
    for task in run.graph.tasks:
        found.setdefault((task.stage or task.name, task.resource), []).append(task)
    return found
