"""`rpeg trace diff`: which events count, what is left out, which gap comes first."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from rpeg.tools.tracing.read import TraceError, read_trace
from tests.unit.passes.pipelines import grpo
from tests.unit.tools.commands import PLAN, Shell


def event(stage: str, step: int, begin: float, seconds: float, **more: Any) -> dict[str, Any]:
    """A complete event; times in seconds."""
    args = {"step": step, "stage": stage}
    return {
        **{"name": stage.rpartition("/")[2], "cat": "work", "ph": "X", "pid": 0, "tid": 0},
        **{"ts": begin * 1e6, "dur": seconds * 1e6, "args": args},
        **more,
    }


def steps(generate: float, update: float, number: int = 3) -> list[dict[str, Any]]:
    """Steps of two stages, one after the other; the first step takes ten times as long."""
    events, now = [], 100.0
    for step in range(1, number + 1):
        factor = 10.0 if step == 1 else 1.0
        for stage, seconds in (("generate", generate), ("update_actor", update)):
            events.append(event(stage, step, now, factor * seconds))
            now += factor * seconds
    return events


def write(path: Path, events: list[dict[str, Any]]) -> Path:
    path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    return path


def as_a_run(path: Path, events: list[dict[str, Any]], end: str = "") -> Path:
    """An event a line, and no bracket at the end."""
    path.write_text("[\n" + "".join(json.dumps(e) + ",\n" for e in events) + end, "utf-8")
    return path


def test_biggest_gap_first(shell: Shell) -> None:
    write(shell.folder / "predicted.json", [*steps(2.0, 1.0), event("reshard", 2, 130, 0.1)])
    (shell.folder / "run").mkdir()
    as_a_run(shell.folder / "run" / "trace.json", steps(2.5, 3.0))
    done = shell("trace", "diff", "predicted.json", "run")
    assert done.code == 0, done.err
    assert [line.split() for line in done.out.splitlines()[1:5]] == [
        ["update_actor", "1.0000", "3.0000", "+2.0000", "3.00"],
        ["generate", "2.0000", "2.5000", "+0.5000", "1.25"],
        ["reshard", "0.1000", "-", "-0.1000", "-"],
        ["step", "3.0000", "5.5000", "+2.5000", "1.83"],
    ]
    table = json.loads(shell("trace", "diff", "predicted.json", "run", "--json").out)
    assert table["steps"] == {"predicted": 2, "measured": 2}
    assert [gap["name"] for gap in table["stages"]] == ["update_actor", "generate", "reshard"]
    assert table["stages"][2]["measured_s"] is None and table["stages"][2]["ratio"] is None


def test_skipped_steps(shell: Shell) -> None:
    """One step alone counts unless it is to be skipped; none skipped, the first counts too."""
    write(shell.folder / "one.json", steps(1.0, 1.0, number=1))
    write(shell.folder / "three.json", steps(1.0, 1.0))
    table = json.loads(shell("trace", "diff", "one.json", "three.json", "--json").out)
    assert table["step"]["predicted_s"] == pytest.approx(20.0)
    assert table["step"]["measured_s"] == pytest.approx(2.0)
    table = json.loads(shell("trace", "diff", "one.json", "three.json", "--skip=0", "--json").out)
    assert table["steps"]["measured"] == 3
    done = shell("trace", "diff", "three.json", "one.json", "--skip", "1")
    assert (done.code, done.err) == (
        2,
        "error: --skip 1: one.json has no more: it has 1 in all\n",
    )


def test_the_slowest_track_counts_without_its_waits(tmp_path: Path) -> None:
    events = [
        event("generate", 1, 0.0, 2.0),
        event("generate", 1, 0.0, 5.0, tid=1),
        event("generate/wait_actor", 1, 1.0, 2.5, tid=1, cat="wait"),
        event("generate/decode", 1, 1.0, 9.0, tid=1),
        event("put_y", 1, 5.0, 7.0, cat="wait"),
    ]
    trace = read_trace(write(tmp_path / "trace.json", events))
    assert trace.stages == {"generate": {1: pytest.approx(2.5)}}
    assert trace.steps == {1: pytest.approx(12.0)}


def test_a_line_that_a_kill_cut_short(tmp_path: Path) -> None:
    whole = read_trace(as_a_run(tmp_path / "whole.json", steps(1.0, 2.0)))
    cut = read_trace(as_a_run(tmp_path / "cut.json", steps(1.0, 2.0), end='{"name": "gen'))
    assert cut == whole


def test_repeated_spans_of_a_step_add_up(tmp_path: Path) -> None:
    events = [event("score_r", 1, 0.0, 1.0), event("score_r", 1, 2.0, 1.0)]
    trace = read_trace(write(tmp_path / "trace.json", events))
    assert trace.stages["score_r"][1] == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("not json", "not JSON"),
        ("[\n{nor this},\n", "an event that is not JSON"),
        ('{"events": []}', "neither an array of events"),
        ("[]", "no complete event"),
        ('[{"ph": "X", "ts": 1, "dur": 1}]', "an event whose args.stage, or name without one"),
        *(
            (f'[{{"name": "a", "ph": "X", {fields}}}]', f"an event whose {why}")
            for fields, why in (
                ('"ts": 1', "dur is not a finite number of at least 0"),
                ('"ts": 1, "dur": "?"', "dur is not a finite number"),
                ('"ts": 1, "dur": -1', "dur is not a finite number"),
                ('"ts": 1, "dur": Infinity', "dur is not a finite number"),
                (f'"ts": 1, "dur": {10**400}', "dur is not a finite number"),
                ('"ts": NaN, "dur": 1', "ts is not a finite number"),
                ('"ts": 1, "dur": 1, "args": [1]', "args are not an object"),
                ('"ts": 1, "dur": 1, "args": {"step": "x"}', "args.step is not a whole number"),
                ('"ts": 1, "dur": 1, "args": {"stage": 7}', "args.stage, or name without one, is"),
            )
        ),
    ],
)
def test_files_in_another_form(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(TraceError) as error:
        read_trace(path)
    assert str(error.value).startswith(f"{path}: {why}")


def test_a_compressed_file(tmp_path: Path) -> None:
    plain = write(tmp_path / "trace.json", steps(2.0, 1.0))
    packed = tmp_path / "trace.json.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert read_trace(packed) == read_trace(plain)
    packed.write_bytes(packed.read_bytes()[:-12])
    with pytest.raises(TraceError, match=r"trace\.json\.gz: damaged or cut short"):
        read_trace(packed)


def test_a_simulation_has_the_names_of_a_run(shell: Shell) -> None:
    write(
        shell.folder / "run.json", [event(name, 1, 0, 1) for name in ("generate", "update_actor")]
    )
    shell.write(text=grpo().rstrip()[:-1] + PLAN + "}\n")
    words = ("--cluster", "h100-1", "--arch", "actor=qwen2.5-7b", "--arch", "ref=qwen2.5-7b")
    done = shell("simulate", "p.rpeg", "--steps", "3", *words, "--trace", "simulated.json")
    assert done.code == 0, done.err
    table = json.loads(shell("trace", "diff", "simulated.json", "run.json", "--json").out)
    both = {gap["name"] for gap in table["stages"] if gap["ratio"] is not None}
    alone = {gap["name"] for gap in table["stages"] if gap["ratio"] is None}
    assert both == {"generate", "update_actor"}
    assert {"logprob_ref", "score_correct"} <= alone


def test_a_missing_file(shell: Shell) -> None:
    done = shell("trace", "diff", "none.json", "none.json")
    assert (done.code, done.err) == (1, "error: none.json: No such file or directory\n")
