"""One pipeline on one cluster: what was found, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from rpeg.ir.text.diagnostics import Diagnostic, DiagnosticsError
from rpeg.ir.text.sources import Sources
from rpeg.tools.checking.staleness import Age, ages
from rpeg.tools.console import Source
from rpeg.tools.predicting.arguments import Target
from rpeg.tools.predicting.placing import Placed, placed


@dataclass(frozen=True)
class Findings:
    """Of a pipeline that no rule of the language refuses."""

    placed: Placed
    orders: Mapping[str, Sequence[str]]
    """Tasks of each pool in order, none of which waits for itself."""
    ages: Sequence[Age]

    def lines(self) -> Iterator[str]:
        """What a reader wants to know, a line each."""
        yield f"plan {self.placed.plan} on {self.placed.cluster}"
        tasks = ", ".join(f"{len(order)} tasks on {pool}" for pool, order in self.orders.items())
        yield f"order: {tasks}: no deadlock"
        yield from (f"staleness: {age}" for age in self.ages)

    def to_json(self) -> dict[str, Any]:
        """The same as plain lists and objects."""
        return {
            "pipeline": self.placed.pipeline.title,
            "plan": self.placed.plan,
            "cluster": self.placed.cluster,
            "order": {pool: list(order) for pool, order in self.orders.items()},
            "staleness": [asdict(age) for age in self.ages],
        }


def examine(
    module: ModuleOp, sources: Sources, source: Source, target: Target
) -> tuple[Findings | None, Sequence[Diagnostic]]:
    """Places a verified pipeline: what was found, unless the messages tell why it can't be.

    Raises Failure if there is no such cluster or plan.
    """
    try:
        there = placed(module, sources, source, target)
        return Findings(there, there.orders(), tuple(ages(there.pipeline))), ()
    except DiagnosticsError as error:
        return None, error.diagnostics
