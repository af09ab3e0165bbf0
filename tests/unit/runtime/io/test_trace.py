"""The clock and the trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rpeg.runtime.errors import RuntimeFailure
from rpeg.runtime.logs.clock import RunClock, Span
from rpeg.runtime.logs.trace import TraceFile, read_trace


def test_stages_are_summed_by_name_and_nest() -> None:
    clock = RunClock()
    clock.begin_step(4)
    for _ in range(2):
        with clock.stage("eval"), clock.stage("generate"):
            pass
    assert list(clock.stage_seconds()) == ["eval/generate", "eval"]
    spans = clock.spans()
    assert [span.step for span in spans] == [5] * 4
    inner, outer = spans[:2]
    assert outer.begin <= inner.begin <= inner.end <= outer.end
    assert clock.stage_seconds()["eval"] == sum(s.end - s.begin for s in spans if s.name == "eval")
    clock.begin_step(5)
    assert clock.stage_seconds() == {}


def test_events_are_what_perfetto_reads(tmp_path: Path) -> None:
    trace = TraceFile(tmp_path / "trace.json", "grpo", ["rollout 0", "trainer 1"])
    trace.append(
        [
            [Span("eval/generate", 1, 10.0, 10.5, model=0.4)],
            [Span("update", 1, 10.5, 11.0)],
        ]
    )
    assert trace.path.read_text().startswith("[\n{")
    assert list(read_trace(trace.path)) == [
        {
            "name": "generate",
            "cat": "work",
            "ph": "X",
            "ts": 10_000_000,
            "dur": 500_000,
            "pid": 0,
            "tid": 0,
            "args": {"step": 1, "stage": "eval/generate", "model": 400_000},
        },
        {
            "name": "update",
            "cat": "work",
            "ph": "X",
            "ts": 10_500_000,
            "dur": 500_000,
            "pid": 0,
            "tid": 1,
            "args": {"step": 1, "stage": "update", "model": 0},
        },
    ]


def test_a_resumed_run_drops_the_events_past_its_checkpoint(tmp_path: Path) -> None:
    trace = TraceFile(tmp_path / "trace.json", "grpo", ["rollout 0", "trainer 1"])
    for step in (1, 2, 3):
        trace.append([[Span("update", step, step, step + 1)]])
    with trace.path.open("a") as file:
        file.write('{"name": "upd')
    trace.drop_after(1)
    trace.append([[Span("update", 2, 7, 8)]])
    assert [(e["args"]["step"], e["ts"]) for e in read_trace(trace.path)] == [
        (1, 1_000_000),
        (2, 7_000_000),
    ]


def test_a_finished_run_leaves_json_that_names_its_processes_and_may_go_on(tmp_path: Path) -> None:
    trace = TraceFile(tmp_path / "trace.json", "grpo", ["rollout 0", "trainer 1"])
    trace.close()
    assert not trace.path.exists()
    for step in (1, 2):
        trace.append([[Span("sample", step, step, step + 1)], [Span("update", step, 3, 4)]])
        trace.close()
        events = json.loads(trace.path.read_text())
        named = [(e["name"], e.get("tid"), *e["args"].values()) for e in events if e["ph"] == "M"]
        assert named == [
            ("process_name", None, "grpo"),
            ("thread_name", 0, "rollout 0"),
            ("thread_name", 1, "trainer 1"),
            ("process_labels", None, "ended"),
        ]
        steps = [e["args"]["step"] for e in events if e["ph"] == "X"]
        assert steps == [s for s in (1, 2) if s <= step for _ in range(2)]
        trace.drop_after(step)


def test_a_damaged_event_is_named_by_its_line(tmp_path: Path) -> None:
    trace = TraceFile(tmp_path / "trace.json", "grpo", ["rollout 0", "trainer 1"])
    trace.append([[Span("update", step, step, step + 1) for step in (1, 2)]])
    trace.path.write_text(trace.path.read_text().replace('"step": 1', '"st'))
    with pytest.raises(RuntimeFailure, match=r"trace\.json:5 cannot be read \("):
        trace.drop_after(1)
