"""Seconds of each stage, read from a trace in the format of Perfetto and chrome://tracing.

Complete events (`ph` is X) count: `ts` and `dur` in microseconds, `args.step` and `args.stage`, as
runs and simulations write them; an event without them is of one step, its stage is its name. A
simulation says besides what a run's clock calls the stage, as `args.timed_as`. The file is an
array, which may lack its end, or an object with `traceEvents`; either may be compressed by gzip, as
PyTorch's profiler writes it.
"""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MICRO = 1e-6

WAIT = "wait"
"""The category of spans in which a process waited for another pool."""


class TraceError(ValueError):
    """A file that holds no trace; the text says which and why."""


@dataclass(frozen=True)
class Span:
    """One stage of one step on one track: a process of a run, a resource of a simulation."""

    stage: str
    """`outer/inner` for a stage inside a stage."""
    step: int
    track: tuple[str, str]
    begin: float
    """Seconds."""
    end: float
    waits: bool


@dataclass(frozen=True)
class Trace:
    """What a trace says of its steps."""

    steps: Mapping[int, float]
    """The second at which each step's last stage ended, in the order of steps."""
    begin: float
    """The second at which the first stage began."""
    stages: Mapping[str, Mapping[int, float]]
    """Seconds of work of each stage, by step, on the track where it took longest."""


def read_trace(path: Path) -> Trace:
    """The trace at `path`, or `trace.json` in a run's folder. Raises TraceError."""
    file = path / "trace.json" if path.is_dir() else path
    spans = [_span(event, file) for event in _events(_text(file), file) if event.get("ph") == "X"]
    if not spans:
        raise TraceError(f'{file}: no complete event ("ph": "X")')
    return Trace(_ends(spans), min(span.begin for span in spans), _stages(spans))


GZIP = b"\x1f\x8b"
"""What compressed files begin with (RFC 1952, section 2.3.1)."""


def _text(file: Path) -> str:
    """The file's text, unpacked."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise TraceError(f"{file}: {error.strerror}") from error
    try:
        return (gzip.decompress(data) if data.startswith(GZIP) else data).decode("utf-8")
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(f"{file}: damaged or cut short: gzip cannot unpack it") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{file}: not UTF-8 text") from error


def _events(text: str, file: Path) -> list[dict[str, Any]]:
    """The file's events; of an array without an end, those that are whole."""
    try:
        held = json.loads(text)
    except json.JSONDecodeError:
        held = _unfinished(text, file)
    events = held.get("traceEvents") if isinstance(held, dict) else held
    if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
        raise TraceError(f'{file}: neither an array of events nor an object with "traceEvents"')
    return events


def _unfinished(text: str, file: Path) -> list[dict[str, Any]]:
    """An array with an event a line and no bracket at its end; a last line may be cut short."""
    first, *lines = text.split("\n")
    if first.strip() != "[":
        raise TraceError(f"{file}: not JSON")
    try:
        return [json.loads(line.rstrip(", ")) for line in lines[:-1] if line.strip()]
    except json.JSONDecodeError as error:
        raise TraceError(f"{file}: an event that is not JSON: {error.doc[:60]}") from error


def _span(event: Mapping[str, Any], file: Path) -> Span:
    args = event.get("args") or {}
    if not isinstance(args, dict):
        raise _wrong(event, file, "args are not an object")
    stage = args.get("timed_as") or args.get("stage") or event.get("name")
    if not isinstance(stage, str):
        raise _wrong(event, file, "args.stage, or name without one, is not text")
    step = args.get("step", 0)
    if not isinstance(step, int) or isinstance(step, bool):
        raise _wrong(event, file, "args.step is not a whole number")
    begin, seconds = (_seconds(event.get(key)) for key in ("ts", "dur"))
    if begin is None:
        raise _wrong(event, file, "ts is not a finite number")
    if seconds is None or seconds < 0:
        raise _wrong(event, file, "dur is not a finite number of at least 0")
    return Span(
        stage=stage,
        step=step,
        track=(str(event.get("pid")), str(event.get("tid"))),
        begin=begin,
        end=begin + seconds,
        waits=event.get("cat") == WAIT,
    )


def _seconds(micro: object) -> float | None:
    """Of microseconds; None of what is not a finite number."""
    if isinstance(micro, bool) or not isinstance(micro, int | float):
        return None
    return micro * MICRO if abs(micro) <= sys.float_info.max else None


def _wrong(event: Mapping[str, Any], file: Path, what: str) -> TraceError:
    return TraceError(f"{file}: an event whose {what}: {event}"[:200])


def _ends(spans: Iterable[Span]) -> dict[int, float]:
    ends: dict[int, float] = {}
    for span in spans:
        ends[span.step] = max(span.end, ends.get(span.step, span.end))
    return dict(sorted(ends.items()))


def _stages(spans: Iterable[Span]) -> dict[str, dict[int, float]]:
    """A stage inside another counts as part of it; waits inside are no work of either. What takes
    no time is left out.
    """
    work: defaultdict[tuple[str, int, tuple[str, str]], float] = defaultdict(float)
    for span in spans:
        outer, _, inner = span.stage.partition("/")
        seconds = span.end - span.begin
        if inner and span.waits:
            work[outer, span.step, span.track] -= seconds
        elif not inner and not span.waits:
            work[outer, span.step, span.track] += seconds
    stages: defaultdict[str, dict[int, float]] = defaultdict(dict)
    for (stage, step, _), seconds in work.items():
        stages[stage][step] = max(seconds, stages[stage].get(step, 0.0))
    return {stage: by_step for stage, by_step in stages.items() if any(by_step.values())}
