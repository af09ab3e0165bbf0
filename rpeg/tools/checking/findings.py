"""One pipeline on one cluster: what was found, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from rpeg.cost.estimate import Estimate
from rpeg.ir.text.diagnostics import Diagnostic, DiagnosticsError
from rpeg.ir.text.sources import Sources
from rpeg.passes.base import step
from rpeg.tools.checking.memory import memory_lines, memory_problems
from rpeg.tools.checking.staleness import Age, ages
from rpeg.tools.console import Source
from rpeg.tools.predicting.arguments import Target
from rpeg.tools.predicting.estimates import predicted
from rpeg.tools.predicting.placing import NoSpeeds, Placed, placed


@dataclass(frozen=True)
class Findings:
    """What is known of a pipeline that a cluster can run."""

    pipeline: str
    plan: str
    cluster: str
    orders: Mapping[str, Sequence[str]]
    """Tasks of each pool in order, none of which waits for itself."""
    ages: Sequence[Age]
    estimate: Estimate | None
    """None where the cluster's file doesn't tell how fast and large it is."""
    notes: Sequence[str]

    def lines(self) -> Iterator[str]:
        """What a reader wants to know, a line each."""
        seconds = f": {self.estimate.period_s:.3g} s per step" if self.estimate is not None else ""
        yield f"plan {self.plan} on {self.cluster}{seconds}"
        tasks = ", ".join(f"{len(order)} tasks on {pool}" for pool, order in self.orders.items())
        yield f"order: {tasks}: no deadlock"
        yield from (f"staleness: {age}" for age in self.ages)
        if self.estimate is not None:
            yield from memory_lines(self.estimate.memory)
        yield from (f"note: {note}" for note in self.notes)

    def to_json(self) -> dict[str, Any]:
        """The same as plain lists and objects."""
        return {
            "pipeline": self.pipeline,
            "plan": self.plan,
            "cluster": self.cluster,
            "order": {pool: list(order) for pool, order in self.orders.items()},
            "staleness": [asdict(age) for age in self.ages],
            "estimate": self.estimate.to_json() if self.estimate is not None else None,
            "notes": list(self.notes),
        }


def examine(
    module: ModuleOp, sources: Sources, source: Source, target: Target
) -> tuple[Findings | None, Sequence[Diagnostic]]:
    """Places a verified pipeline: what was found, and what is wrong; nothing is found where it
    can't be placed.

    Raises Failure if there is no such cluster, plan or architecture.
    """
    try:
        there = placed(module, sources, source, target)
        return _examined(there, target)
    except DiagnosticsError as error:
        return None, error.diagnostics


def _examined(there: Placed, target: Target) -> tuple[Findings, Sequence[Diagnostic]]:
    orders = there.orders()
    estimate, notes = _estimate(there, target)
    memory = estimate.memory if estimate is not None else ()
    found = Findings(
        pipeline=there.pipeline.title,
        plan=there.plan,
        cluster=there.cluster,
        orders=orders,
        ages=tuple(ages(there.pipeline)),
        estimate=estimate,
        notes=notes,
    )
    return found, list(memory_problems(memory, step(there.pipeline), there.source.name))


def _estimate(there: Placed, target: Target) -> tuple[Estimate | None, Sequence[str]]:
    """The estimate with its assumptions, or why there is none."""
    try:
        found = predicted(there, target).estimate
    except NoSpeeds as error:
        return None, (*there.notes, f"memory is not checked: {error}")
    return found, found.notes
