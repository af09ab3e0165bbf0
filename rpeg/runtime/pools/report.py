"""What a pool says of a step that it has finished."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rpeg.runtime.logs.clock import Span
from rpeg.runtime.logs.metrics import Entry
from rpeg.runtime.state.ledger import Consumed, Dropped


@dataclass(frozen=True)
class StepReport:
    """One pool's part of a step, of all its processes."""

    pool: str
    metrics: Mapping[str, Entry]
    spans: Sequence[list[Span]]
    """By process of the pool."""
    notes: Sequence[Mapping[str, str]]
    updates: Sequence[Sequence[Consumed]]
    """By data-parallel share."""
    dropped: Sequence[Dropped]
    state: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    """Of a pool that isn't home: its parts of a checkpoint after this step."""
