"""Errors by group and source: how many, median and mean, order, and how much is predicted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rpeg.cost.validation.names import common
from rpeg.cost.validation.predictions import FIELDS, MAIN, Outcome, is_memory
from rpeg.cost.validation.rows import Row, publisher

AIMS = {
    "training step, dense": 0.10,
    "training step, experts": 0.15,
    "peak memory": 0.08,
    "generation": 0.20,
    "RL step": 0.20,
    "collectives": 0.15,
}
"""Median error that each group is to stay under, leaving out the source it is measured on."""

GROUPS = {
    "memory": "peak memory",
    "generate": "generation",
    "rl_step": "RL step",
    "collective": "collectives",
    "hardware": "single kernels",
}


def group(outcome: Outcome) -> str:
    """The group a quantity is scored in."""
    row = outcome.row
    if is_memory(common(outcome.quantity, outcome.unit)):
        return GROUPS["memory"]
    if row.kind == "train":
        has_experts = bool(row.table("model").get("experts"))
        return "training step, experts" if has_experts else "training step, dense"
    return GROUPS.get(row.kind, row.kind)


def scored(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """One quantity of a record and group: the first that constants are fitted to, or the first."""
    best: dict[tuple[str, str], Outcome] = {}
    for outcome in outcomes:
        key = (outcome.row.id, group(outcome))
        if key not in best or _rank(outcome) < _rank(best[key]):
            best[key] = outcome
    return list(best.values())


def _rank(outcome: Outcome) -> int:
    order = MAIN.get(outcome.row.kind, ())
    place = order.index(outcome.quantity) if outcome.quantity in order else len(order)
    return place + (0 if outcome.predicted is not None else 100)


@dataclass(frozen=True)
class Score:
    """Errors of one group, or of one group and source."""

    name: str
    records: int
    predicted: int
    median: float
    mean: float
    rank: float
    """Spearman's correlation of predicted and measured; not a number below three."""

    @property
    def coverage(self) -> float:
        """Share of the records that are predicted."""
        return self.predicted / self.records if self.records else 0.0


def score(name: str, outcomes: Sequence[Outcome]) -> Score:
    """Of some quantities of one group."""
    told = [outcome for outcome in outcomes if outcome.predicted is not None]
    errors = np.array([outcome.error for outcome in told])
    return Score(
        name=name,
        records=len(outcomes),
        predicted=len(told),
        median=float(np.median(errors)) if told else float("nan"),
        mean=float(errors.mean()) if told else float("nan"),
        rank=_order(told),
    )


def _order(told: Sequence[Outcome]) -> float:
    """Correlation of ranks, within a quantity; weighted by how many there are."""
    parts = []
    for name in sorted({outcome.quantity for outcome in told}):
        same = [outcome for outcome in told if outcome.quantity == name]
        if len(same) >= 3:
            parts.append((len(same), _spearman(same)))
    total = sum(count for count, _ in parts)
    return sum(count * value for count, value in parts) / total if total else float("nan")


def _spearman(outcomes: Sequence[Outcome]) -> float:
    measured = _ranks(np.array([outcome.measured for outcome in outcomes]))
    predicted = _ranks(np.array([outcome.predicted for outcome in outcomes], dtype=np.float64))
    if measured.std() == 0 or predicted.std() == 0:
        return float("nan")
    return float(np.corrcoef(measured, predicted)[0, 1])


def _ranks(
    values: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Ranks, equal values sharing their mean."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2.0)[place]


def has_fields(row: Row) -> bool:
    """Whether a record has all that its kind needs to be predicted."""
    return not missing(row)


def missing(row: Row) -> list[str]:
    """What a record lacks of it; some fields have others that stand for them."""
    lacking = [field for field in FIELDS.get(row.kind, ()) if not _has(row, field)]
    return [field for field in lacking if not any(_has(row, f) for f in INSTEAD.get(field, ()))]


INSTEAD = {
    "hardware.gpu": ("hardware.machine",),
    "model.layers": ("model.config",),
    "model.hidden": ("model.config",),
    "parallelism.tp": ("parallelism.zero", "args"),
    "batch.global": (
        "batch.global_tokens",
        "batch.micro_num",
        "batch.micro_batches",
        "batch.num_requests",
    ),
    "batch.micro": ("batch.grad_accum", "batch.global"),
    "batch.generation_samples": ("batch.samples_per_prompt",),
    "lengths.average_total": ("lengths.response",),
    "hardware.count": ("args", "hardware.nodes"),
}


def _has(row: Row, field: str) -> bool:
    table, _, key = field.partition(".")
    if not key:
        return row.fields.get(table) is not None
    return key in row.table(table)


def reasons(outcomes: Iterable[Outcome]) -> Counter[tuple[str, str]]:
    """How many records of each group go unpredicted, and why."""
    return Counter((group(o), o.reason) for o in scored(outcomes) if o.predicted is None)


def source(outcome: Outcome) -> str:
    """Who measured it."""
    return publisher(str(outcome.row.table("source").get("url", "unnamed")))
