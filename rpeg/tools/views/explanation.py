"""What `rpeg explain` prints: a step's time, its bounds, what it waits for, stage by stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rpeg.cost.estimate import Estimate, StageEstimate
from rpeg.cost.period.cycles import critical_cycle
from rpeg.cost.period.graph import Why
from rpeg.cost.period.reasons import VISIBLE, Change, Hop, hops, what_if
from rpeg.cost.period.variance import expected_period
from rpeg.cost.profiles.variation import spreads
from rpeg.tools.checking.memory import lacking
from rpeg.tools.predicting.estimates import Predicted

BECAUSE: dict[Why, str] = {
    "data": "reads what it makes",
    "state": "continues from the state that it leaves",
    "books": "begins once the step before has ended there",
    "order": "next on the same resource",
    "staleness": "waits for new weights",
    "back-pressure": "waits for room in a channel",
}
"""Why a task waits for the one before it on the cycle."""
OVERWRITES = "replaces the state that it reads"
"""Why one waits for another of the same step for the sake of a state."""
BOUNDS = {
    "load": "work of the busiest resource",
    "cycle": "cycles of data and weights",
    "head_body_tail": "head, work and tail of a resource",
}
CAUSES = ("compute", "memory", "communication", "overhead")
HEADS = {"communication": "network"}
"""Of columns, where a cause's name is too long."""


@dataclass(frozen=True)
class Explanation:
    """An estimate, and the reasons for its period."""

    estimate: Estimate
    hops: Sequence[Hop]
    changes: Sequence[Change]
    varied_s: float
    """Mean period with times as random as lengths are."""

    def to_json(self) -> dict[str, Any]:
        """The estimate's figures, and beside them the reasons."""
        return {
            **self.estimate.to_json(),
            "critical_hops": [asdict(hop) for hop in self.hops],
            "what_if": [asdict(change) for change in self.changes],
            "varied_period_s": self.varied_s,
        }

    def text(self) -> str:
        """The explanation as text."""
        parts = (self._head(), self._cycle(), self._stages(), self._what_if(), self._notes())
        return "\n".join("\n".join(lines) for part in parts if (lines := list(part))) + "\n"

    def _head(self) -> Iterator[str]:
        it = self.estimate
        yield f"{it.pipeline}: plan {it.plan} on {it.cluster}, {it.size}"
        if (why := lacking(it.memory)) is not None:
            yield why
        yield f"{_seconds(it.period_s)}  a step, in the steady state"
        more = self.varied_s / it.period_s - 1 if it.period_s else 0.0
        if more > VISIBLE:
            yield f"{_seconds(self.varied_s)}  with lengths as they vary ({more:+.1%})"
        yield f"{_seconds(it.latency_s)}  from the first task of a step to its last, by itself"
        if it.cost.usd_per_step is not None:
            yield f"{it.cost.usd_per_step:8.2f} $  a step"
        for name, words in BOUNDS.items():
            yield f"{_seconds(getattr(it.bounds, name))}  at least: {words}"

    def _cycle(self) -> Iterator[str]:
        if not self.hops:
            return
        total, steps = sum(hop.seconds for hop in self.hops), self.estimate.critical_distance
        every = f"{steps} steps" if steps > 1 else "a step"
        yield f"\nwhat it waits for: {total:.2f} s for {every}"
        wide = max(len(hop.task) for hop in self.hops)
        where = max(len(hop.resource or "") for hop in self.hops)
        previous = self.hops[-1].task
        for hop in self.hops:
            line = f"{hop.task:{wide}}  {_seconds(hop.seconds)}  {hop.resource or '':{where}}"
            yield f"  {line}  {_because(hop, previous)}"
            previous = hop.task

    def _stages(self) -> Iterator[str]:
        stages = self.estimate.stages
        wide = max([5, *(len(stage.stage) for stage in stages)])
        pool = max([4, *(len(stage.pool) for stage in stages)])
        causes = " ".join(f"{HEADS.get(cause, cause):>10}" for cause in (*CAUSES, "other"))
        yield f"\n{'stage':{wide}}  {'pool':{pool}}  {'seconds':>10} {causes}    MFU    MBU"
        for stage in stages:
            parts = " ".join(f"{part:10.4g}" for part in _parts(stage))
            name = f"{stage.stage:{wide}}  {stage.pool:{pool}}"
            yield f"{name}  {stage.seconds:10.4g} {parts} {stage.mfu:6.1%} {stage.mbu:6.1%}"

    def _what_if(self) -> Iterator[str]:
        if self.changes:
            yield "\nwhat would shorten it:"
        for change in self.changes:
            saved = change.period_s / self.estimate.period_s - 1
            yield f"  {_seconds(change.period_s)}  {saved:+6.1%}  {change.what}"

    def _notes(self) -> Iterator[str]:
        if self.estimate.notes:
            yield "\nassumed:"
        yield from (f"  {note}" for note in self.estimate.notes)


def explanation(found: Predicted) -> Explanation:
    """The reasons for a predicted period."""
    cycle = critical_cycle(found.graph)
    return Explanation(
        found.estimate,
        hops(cycle) if cycle is not None else (),
        what_if(found.graph),
        expected_period(found.graph, spreads(found.setting)),
    )


def _because(hop: Hop, previous: str) -> str:
    """What a hop waits for."""
    why = OVERWRITES if hop.why == "state" and not hop.steps else BECAUSE[hop.why]
    before = "the step" if hop.steps == 1 else f"{hop.steps} steps"
    when = f" of {before} before" if hop.steps else ""
    way = f", through {', '.join(hop.via)}" if hop.via else ""
    return f"behind {previous}{when}{way}: {why}"


def _parts(stage: StageEstimate) -> Iterator[float]:
    """Seconds by cause, and of all causes that have no column."""
    yield from (stage.breakdown.get(cause, 0.0) for cause in CAUSES)
    yield sum(seconds for cause, seconds in stage.breakdown.items() if cause not in CAUSES)


def _seconds(value: float) -> str:
    return f"{value:8.2f} s" if value >= 1 else f"{1000 * value:7.1f} ms"
