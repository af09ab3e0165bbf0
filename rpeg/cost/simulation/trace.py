"""A simulated run as events that Perfetto and chrome://tracing read, in microseconds.

The same fields as those of a run, and what the clock of one calls a stage; each resource is one
track, and so is each task without one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rpeg.cost.simulation.run import Run, Span

MICROSECONDS = 1e6


def trace_events(run: Run, timed: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """The names of tracks, then every task of every step.

    `timed` holds the clock's names of stages, where they differ from the plan's.
    """
    tracks = {name: number for number, name in enumerate(_track_names(run))}
    for name, number in tracks.items():
        yield {"name": "thread_name", "ph": "M", "pid": 0, "tid": number, "args": {"name": name}}
    for span in sorted(run.spans(), key=lambda span: span.start):
        yield _event(span, tracks[_track(span)], timed)


def _track_names(run: Run) -> list[str]:
    return list(dict.fromkeys(task.resource or task.name for task in run.graph.tasks))


def _track(span: Span) -> str:
    return span.task.resource or span.task.name


def _event(span: Span, track: int, timed: Mapping[str, str]) -> dict[str, Any]:
    stage = span.task.stage or span.task.name
    return {
        "name": span.task.name,
        "cat": "work",
        "ph": "X",
        "ts": round(span.start * MICROSECONDS),
        "dur": round((span.end - span.start) * MICROSECONDS),
        "pid": 0,
        "tid": track,
        "args": {"step": span.step, "stage": stage, "timed_as": timed.get(stage, stage)},
    }
