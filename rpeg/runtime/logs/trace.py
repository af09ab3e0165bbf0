"""What each process did when: `trace.json`, in the format that Perfetto and chrome://tracing read.

One event per line, in an array whose closing bracket is optional in the format; so a run appends to
it, and a resumed run drops the events past its checkpoint. The end of a run closes the array;
resuming it opens it again. Each process is one track, named by its pool and number.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rpeg.rundir import jsonl
from rpeg.rundir.files import write_atomic
from rpeg.runtime.logs.clock import Span

_MICROSECONDS = 1e6


class TraceFile:
    """`trace.json`: appended to by process 0.

    `run` is shown above the tracks, `tracks` holds the name of each process of the launch.
    """

    def __init__(
        self,
        path: Path,
        run: str,
        tracks: Sequence[str],
        append: jsonl.Append = jsonl.append_text,
    ) -> None:
        self.path = path
        self._names = [_named("process_name", name=run)]
        self._names += [_named("thread_name", n, name=track) for n, track in enumerate(tracks)]
        self._append = append

    def append(self, spans_by_process: Sequence[list[Span]]) -> None:
        """Adds the stages of one step, one list per process."""
        if not self.path.exists():
            self._write([])
        processes = enumerate(spans_by_process)
        lines = [_line(_event(span, process)) for process, spans in processes for span in spans]
        self._append(self.path, "".join(lines))

    def drop_after(self, step: int) -> None:
        """Forgets the events past `step`."""
        if self.path.exists():
            self._write([e for e in read_trace(self.path) if e["args"]["step"] <= step])

    def close(self) -> None:
        """Ends the array, if anything was traced: with an event, as a comma stands before it."""
        if self.path.exists():
            self._append(self.path, json.dumps(_named("process_labels", labels="ended")) + "\n]\n")

    def _write(self, events: list[dict[str, Any]]) -> None:
        write_atomic(self.path, "[\n" + "".join(map(_line, [*self._names, *events])))


def read_trace(path: Path) -> Iterator[dict[str, Any]]:
    """The stages in a `trace.json`; a last line cut short by a kill is left out.

    Raises RunFolderFailure for any other line that is damaged.
    """
    texts = path.read_bytes().split(b"\n")
    for number, text in enumerate(texts[1:-1], start=2):
        if text != b"]" and (event := jsonl.parse(text.rstrip(b","), path, number))["ph"] == "X":
            yield event


def _event(span: Span, process: int) -> dict[str, Any]:
    return {
        "name": span.name.rsplit("/", 1)[-1],
        "cat": "wait" if span.idle else "work",
        "ph": "X",
        "ts": round(span.begin * _MICROSECONDS),
        "dur": round((span.end - span.begin) * _MICROSECONDS),
        "pid": 0,
        "tid": process,
        "args": {
            "step": span.step,
            "stage": span.name,
            "model": round(span.model * _MICROSECONDS),
        },
    }


def _named(what: str, process: int | None = None, **args: str) -> dict[str, Any]:
    """Metadata of one process's track, or of all."""
    track = {} if process is None else {"tid": process}
    return {"name": what, "ph": "M", "pid": 0, **track, "args": args}


def _line(event: dict[str, Any]) -> str:
    return json.dumps(event) + ",\n"
