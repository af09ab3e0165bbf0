"""One time line for a process: seconds since its start, and of each stage of the current step."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rpeg.runtime.model_time import model_seconds


@dataclass(frozen=True)
class Span:
    """One timed stage of a process."""

    name: str
    step: int
    """Of which step, counted from 1."""
    begin: float
    """Seconds since the epoch, so that processes and launches share one axis."""
    end: float
    idle: bool = False
    """It waited for another pool."""
    model: float = 0.0
    """Seconds of it inside of models."""


class RunClock:
    """Implements `interfaces.Clock`.

    A stage inside a stage is named `outer/inner`; each counts its whole body.
    """

    def __init__(self) -> None:
        self._origin = time.monotonic()
        self._epoch = time.time()
        self._step = 0
        self._step_began = 0.0
        self._spans: list[Span] = []
        self._open: list[str] = []

    def now(self) -> float:
        """Seconds since this clock was made."""
        return time.monotonic() - self._origin

    @contextmanager
    def stage(self, name: str, *, idle: bool = False) -> Iterator[None]:
        """Times the body as stage `name` of the current step; `idle`: it waits for another pool."""
        begin, inside = self.now(), model_seconds()
        self._open.append(name)
        try:
            yield
        finally:
            name, zero = "/".join(self._open), self._epoch
            times = zero + begin, zero + self.now()
            inside = model_seconds() - inside
            self._spans.append(Span(name, self._step + 1, *times, idle, inside))
            self._open.pop()

    def begin_step(self, step: int) -> None:
        """Forgets the stages before; `step` counts from 0."""
        self._step = step
        self._step_began = self.now()
        self._spans = []

    def step_seconds(self) -> float:
        """Seconds since the current step began."""
        return self.now() - self._step_began

    def spans(self) -> list[Span]:
        """The finished stages of the current step, in the order of their ends."""
        return list(self._spans)

    def idle_seconds(self) -> float:
        """Seconds that the current step has waited for other pools."""
        return sum(span.end - span.begin for span in self._spans if span.idle)

    def stage_seconds(self) -> dict[str, float]:
        """Seconds in each stage of the current step, repeated stages summed."""
        total: defaultdict[str, float] = defaultdict(float)
        for span in self._spans:
            total[span.name] += span.end - span.begin
        return dict(total)
