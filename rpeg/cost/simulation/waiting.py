"""How resources spend their time: at work, or idle for what the next task waited for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rpeg.cost.arrays import Array
from rpeg.cost.period.graph import Edge
from rpeg.cost.simulation.run import Run, Span


@dataclass(frozen=True)
class Occupation:
    """Shares of the time after the warm-up; they add up to 1.

    A gap counts for the edge whose source ended last before the task that ends it, order apart.
    """

    busy: float
    idle: Mapping[str, float]


def occupations(run: Run) -> dict[str, Occupation]:
    """How each resource spent the time; those whose tasks take none are left out."""
    reasons = {task.name: _reasons(run, task.name) for task in run.graph.tasks}
    used = (name for name, tasks in run.graph.resources.items() if any(t.seconds for t in tasks))
    return {name: _occupation(run, name, reasons) for name in used}


def _occupation(run: Run, resource: str, reasons: Mapping[str, Sequence[str]]) -> Occupation:
    """From the resource's first task of the first step that counts to that of the last step."""
    begin, end = (_first(run, resource, step) for step in (run.warm, run.steps - 1))
    idle, free = defaultdict[str, float](float), begin
    for span in _spans(run, resource):
        if begin <= span.start <= end:
            idle[reasons[span.task.name][span.step]] += max(span.start - free, 0.0)
            free = max(free, span.end)
    whole = end - begin
    shares = {why: seconds / whole for why, seconds in idle.items() if seconds > 0.0}
    return Occupation(1.0 - sum(shares.values()), shares)


def _spans(run: Run, resource: str) -> list[Span]:
    found = (span for span in run.spans() if span.task.resource == resource)
    return sorted(found, key=lambda span: (span.start, span.end))


def _first(run: Run, resource: str, step: int) -> float:
    return float(min(run.start[run.row(task.name), step] for task in run.graph.resources[resource]))


def _reasons(run: Run, task: str) -> list[str]:
    """By step, why the task did not start before."""
    edges = [e for e in run.graph.edges if e.target == task and e.why != "order"]
    if not edges:
        return ["order"] * run.steps
    last = np.argmax([_arrivals(run, edge) for edge in edges], axis=0)
    return [edges[number].why for number in last]


def _arrivals(run: Run, edge: Edge) -> Array:
    """By step, when what the edge waits for was there; 0 for what lies before the first step."""
    ends = run.end[run.row(edge.source), : max(run.steps - edge.distance, 0)]
    return np.concatenate([np.zeros(run.steps - len(ends)), ends])
