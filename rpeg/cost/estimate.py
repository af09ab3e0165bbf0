"""What a pipeline costs under a plan: the figures that every command and report shows.

Seconds, bytes, FLOPs and US dollars throughout. `Estimate.to_json` has the same names; a figure's
path in it, such as `stages.0.seconds`, is its key in reports.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

MemoryKind = Literal["gpu", "host"]


@dataclass(frozen=True)
class Bounds:
    """Lower bounds of the period in seconds; the period is at least the largest."""

    load: float
    """The busiest resource's work of one step."""
    cycle: float
    """Maximum cycle ratio without the order of tasks on resources."""
    head_body_tail: float
    """All work of a resource between two runs of what each step waits for, with the least time
    before (head) and after it (tail); at least `load`, or 0 if no step waits for the one before."""


@dataclass(frozen=True)
class StageEstimate:
    """One stage of a step, of all its GPUs together."""

    stage: str
    pool: str
    seconds: float
    breakdown: Mapping[str, float]
    """Seconds by cause: compute, memory, communication, overhead and others; their sum is
    `seconds`."""
    flops: float
    """Useful FLOPs of a step, all GPUs together; nothing that is computed again counts."""
    bytes: float
    """Bytes that device memory moves in a step, all GPUs together."""
    mfu: float
    """`flops` over what the pool's GPUs could compute in `seconds`; 0 on cores."""
    mbu: float
    """`bytes` over what their memories could move in `seconds`; 0 on cores."""


@dataclass(frozen=True)
class TaskSpan:
    """One task of a step in the steady state, in seconds from the step's start."""

    task: str
    stage: str | None
    resource: str | None
    start_s: float
    end_s: float


@dataclass(frozen=True)
class PoolMemory:
    """The busiest GPU, or host, of a pool over one period."""

    pool: str
    kind: MemoryKind
    capacity_bytes: float
    peak_bytes: float
    quantile: str
    """The length of responses that it is for: p50, p95, p99 or cap."""
    at_stage: str | None
    """The stage that runs at the peak."""
    terms: Mapping[str, float]
    """Bytes at the peak: weights, gradients, optimizer, activations, logits, kv,
    rollout_weights, buffers, reserved; their sum is `peak_bytes`."""
    timeline: tuple[tuple[float, float], ...]
    """(seconds, bytes) from which on so many are held, in order of time."""
    ranks: tuple[int, int] | None = None
    """The first and the last GPU of those that hold so much, by rank; None of hosts."""

    @property
    def fits(self) -> bool:
        """Whether the peak is within the capacity."""
        return self.peak_bytes <= self.capacity_bytes


@dataclass(frozen=True)
class PoolUse:
    """How busy a pool is; `gpus` is 0 for one of cores."""

    pool: str
    gpus: int
    busy_share: float
    """Seconds of work of a step over the period."""


@dataclass(frozen=True)
class Cost:
    """What a step costs; None where the cluster's file has no price, or no token is made."""

    usd_per_step: float | None
    usd_per_token: float | None
    """For each token of a response or demonstration that is trained on."""
    tokens_per_s: float | None


@dataclass(frozen=True)
class Estimate:
    """A pipeline under a plan on a cluster."""

    pipeline: str
    plan: str
    cluster: str
    gpus: int
    """0 on a cluster of cores."""
    period_s: float
    """Seconds from one step's new weights to the next one's, in the steady state."""
    latency_s: float
    """Seconds from a step's first task to its last, by itself: no other step is waited for."""
    bounds: Bounds
    critical_cycle: tuple[str, ...]
    """Tasks that the period waits for, in order; the last one's next is the first."""
    critical_distance: int
    """Steps that one turn of the cycle takes."""
    stages: tuple[StageEstimate, ...]
    tasks: tuple[TaskSpan, ...]
    memory: tuple[PoolMemory, ...]
    """Each pool's GPUs and hosts, at each quantile of lengths."""
    pools: tuple[PoolUse, ...]
    cost: Cost
    notes: tuple[str, ...] = field(default=())
    """What was assumed: a plan that the file doesn't have, lengths that it doesn't tell."""
    cores: int = 0
    """Processes on a cluster without GPUs, a core each."""

    @property
    def size(self) -> str:
        """How many processes, and of what."""
        return f"{self.gpus} GPUs" if self.gpus else f"{self.cores} cores"

    def to_json(self) -> dict[str, Any]:
        """All figures as plain lists and objects; keys are the fields' names."""
        table: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return table
