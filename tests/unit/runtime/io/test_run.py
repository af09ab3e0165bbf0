"""A run's life: loop, stop, checkpoint, a kill, another launch, the end."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rpeg.rundir.folder import RunFolder, RunRecord
from rpeg.runtime.errors import CheckpointFailure, LayoutFailure, RunFolderFailure, RuntimeFailure
from rpeg.runtime.logs.ending import ending
from rpeg.runtime.logs.metrics import read_metrics
from rpeg.runtime.logs.rollouts import rollout_steps
from rpeg.runtime.run import Run, start
from rpeg.runtime.trajectories import Trajectories

Launch = Callable[..., Run]
Train = Callable[..., float]


class Counter:
    """A part of the state: adds each step's number."""

    def __init__(self, run: Run) -> None:
        self.total = torch.zeros(1)
        run.attach("counter", self)

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.total = state["total"]


@pytest.fixture
def train(completions: Callable[..., Trajectories]) -> Train:
    """A program: adds up step numbers, reports two completions a step, saves every second step."""

    def program(run: Run, die_in: int | None = None, keep: int = 2) -> float:
        counter = Counter(run)
        run.restore()
        for i in run.loop():
            counter.total += i
            run.log("loss", float(counter.total))
            run.report(completions(["a", "bcd"]), r=torch.tensor([0.0, 1.0]))
            if i == die_in:
                raise KeyboardInterrupt
            if run.every(i, steps=2):
                run.checkpoint(keep=keep)
        run.finish()
        return float(counter.total)

    return program


def forget(run: Run) -> None:
    """As if the process had ended: what it wrote is written, and its lock goes with it."""
    assert run._logbook is not None
    run._logbook.settle()
    run._lock.release()
    gc.collect()


def test_metrics_of_a_step(run: Run, train: Train) -> None:
    train(run)
    lines = read_metrics(run.folder.metrics)
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    expected = {
        "reward/r": 0.5,
        "length/mean": 2.0,
        "length/max": 3,
        "finished": 1.0,
        "tokens": 4,
        "loss": 6.0,
    }
    assert {name: lines[-1][name] for name in expected} == expected
    assert lines[0]["tokens_per_s"] == pytest.approx(4 / (lines[0]["seconds"] or 0), rel=1e-3)


def test_a_killed_run_goes_on_as_if_nothing_had_happened(
    launch: Launch, train: Train, tmp_path: Path
) -> None:
    whole = train(launch(steps=7, pipeline="whole"))
    broken = launch(steps=7)
    with pytest.raises(KeyboardInterrupt):
        train(broken, die_in=5)  # steps 0..4 are done, 4 of them are in the checkpoint
    forget(broken)
    again = launch(steps=7)
    assert train(again) == whole
    assert again.record.attempt == 2
    one, two = (
        read_metrics(tmp_path / "runs" / name / "metrics.jsonl") for name in ("whole", "demo")
    )
    assert [line["step"] for line in two] == [1, 2, 3, 4, 5, 6, 7]
    assert [line["loss"] for line in two] == [line["loss"] for line in one]
    assert rollout_steps(tmp_path / "runs" / "demo") == [1, 2, 3, 4, 5, 6, 7]
    rollouts = (tmp_path / "runs/demo/rollouts/step-000005.jsonl").read_text().splitlines()
    assert len(rollouts) == 2  # written before the kill, dropped, written again


def test_a_kill_before_the_first_checkpoint_starts_over(launch: Launch, train: Train) -> None:
    broken = launch()
    with pytest.raises(KeyboardInterrupt):
        train(broken, die_in=1)
    forget(broken)
    again = launch()
    train(again)
    assert [line["step"] for line in read_metrics(again.folder.metrics)] == [1, 2, 3, 4]


def test_old_checkpoints_go_and_half_written_ones_do_not_count(
    launch: Launch, train: Train
) -> None:
    run = launch(steps=8)
    train(run)
    assert sorted(p.name for p in run.folder.checkpoints.iterdir()) == [
        "step-000006",
        "step-000008",
    ]
    (run.folder.checkpoints / ".step-000010.tmp").mkdir()
    again = launch(steps=9)
    Counter(again)
    again.restore()
    assert again.step == 8


def test_finished_run_says_so_and_trains_nothing(
    launch: Launch, train: Train, capsys: pytest.CaptureFixture[str]
) -> None:
    train(launch())
    before = json.loads(Path("runs/demo/run.json").read_text())
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        launch()
    assert not end.value.code
    said = capsys.readouterr().out
    assert "already done: demo finished at step 4" in said
    assert "reward/r 0.500" in said and "RPEG_RUN_DIR" in said
    after = json.loads(Path("runs/demo/run.json").read_text())
    assert after["finished_step"] == before["finished_step"] == 4


def test_a_refused_start_is_no_attempt(launch: Launch, train: Train) -> None:
    """Nothing of the folder changes but its lock."""
    broken = launch()
    with pytest.raises(KeyboardInterrupt):
        train(broken, die_in=3)
    forget(broken)
    kept = broken.folder.checkpoints / "step-000002" / "counter.pt"
    kept.rename(kept.with_suffix(".away"))
    before = {p: p.read_bytes() for p in sorted(broken.folder.path.rglob("*")) if p.is_file()}
    refused = launch()
    with pytest.raises(CheckpointFailure, match=r"no checkpoint in .* can be used"):
        train(refused)
    forget(refused)
    after = {p: p.read_bytes() for p in sorted(broken.folder.path.rglob("*")) if p.is_file()}
    assert after == before
    kept.with_suffix(".away").rename(kept)
    again = launch()
    train(again)
    assert again.record.attempt == 2


def test_more_steps_go_on_from_a_finished_run(launch: Launch, train: Train) -> None:
    train(launch(steps=4))
    longer = launch(steps=6)
    assert train(longer) == sum(range(6))
    assert longer.record.finished_step == 6


def test_stop_ends_the_loop_after_its_step_and_is_remembered(launch: Launch) -> None:
    run = launch(steps=9)
    for i in run.loop():
        run.stop(i / 10, above=0.15)
        run.log("loss", 1.0)
    run.finish()
    assert (run.step, run.record.finished_step, run.record.stopped) == (3, 3, True)
    with pytest.raises(SystemExit):
        launch(steps=9)


def saved(run: Run) -> list[str]:
    return sorted(path.name for path in run.folder.checkpoints.iterdir())


def test_the_last_step_is_kept(
    launch: Launch, train: Train, capsys: pytest.CaptureFixture[str]
) -> None:
    run = launch(steps=7)
    train(run)
    assert saved(run) == ["step-000006", "step-000007"]
    assert capsys.readouterr().out.splitlines()[-1] == (
        "done: demo trained 7 steps, in runs/demo; checkpoint: runs/demo/checkpoints/step-000007"
    )
    longer = launch(steps=9)
    assert train(longer) == sum(range(9))
    assert saved(longer) == ["step-000008", "step-000009"]


def test_how_many_checkpoints_stay_is_remembered(launch: Launch, train: Train) -> None:
    train(launch(steps=6), keep=3)
    longer = launch(steps=7)
    train(longer, keep=3)
    assert saved(longer) == ["step-000004", "step-000006", "step-000007"]


def test_a_step_that_stops_a_run_is_kept(
    launch: Launch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = launch(steps=9)
    for i in run.loop():
        run.stop(i, above=1)
    run.finish()
    assert saved(run) == ["step-000003"]
    said = capsys.readouterr().out.splitlines()[-1]
    assert said.startswith("done: demo trained 3 steps of 9, at its stop condition, in runs/demo; ")


def test_what_to_do_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    record = RunRecord("demo", "0", 0, 20, 1, finished_step=20)
    (tmp_path / "r" / "checkpoints" / "step-000020").mkdir(parents=True)
    folder = RunFolder(tmp_path / "r")
    assert ending(folder, record, ["actor"]).split("; ")[-1] == (
        "next: rpeg eval r --data SOURCE --verifier SOURCE, or rpeg export r -o DIR"
    )
    assert "rpeg export r --model actor -o DIR" in ending(folder, record, ["actor", "critic"])
    (tmp_path / "r").rename(tmp_path / "my runs")
    told = ending(RunFolder(tmp_path / "my runs"), record, ["actor"])
    assert "next: rpeg eval 'my runs' --data" in told and "export 'my runs' -o DIR" in told


def test_every(run: Run) -> None:
    assert [i for i in range(9) if run.every(i, steps=3)] == [2, 5, 8]
    assert [i for i in range(9) if run.every(i, steps=3, first=5)] == [5, 8]


@pytest.mark.parametrize(
    ("seed", "source", "what"), [("1", "0" * 64, "seed 0"), ("0", "1" * 64, "source hash 000")]
)
def test_refuses_the_folder_of_another_run(
    launch: Launch, train: Train, monkeypatch: pytest.MonkeyPatch, seed: str, source: str, what: str
) -> None:
    train(launch())
    monkeypatch.setenv("RPEG_SEED", seed)
    with pytest.raises(RunFolderFailure, match=f"{what}.*RPEG_RUN_DIR.*or delete"):
        launch(source=source)


def test_takes_over_a_folder_in_which_no_step_was_finished(launch: Launch) -> None:
    forget(launch())
    assert launch(source="1" * 64).record.source_sha256 == "1" * 64


def test_refuses_a_folder_with_files_of_others(launch: Launch, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "demo"
    folder.mkdir(parents=True)
    (folder / "thesis.tex").write_text("")
    with pytest.raises(RunFolderFailure, match=r"is not the folder of a run.*thesis\.tex"):
        launch()
    assert [path.name for path in folder.iterdir()] == ["thesis.tex"]


def test_refuses_to_leave_prompts_in_flight_behind(launch: Launch, train: Train) -> None:
    run = launch(steps=2)
    run.attach("y.flight", run.ledger)
    train(run)
    with pytest.raises(CheckpointFailure, match="resume with --order completion"):
        train(launch(steps=4))


def test_refuses_a_folder_in_use(launch: Launch) -> None:
    run = launch()
    with pytest.raises(RunFolderFailure, match=rf"process \(pid {os.getpid()}\) is training"):
        launch()
    run.finish()


def test_refuses_another_number_of_processes(launch: Launch) -> None:
    with pytest.raises(LayoutFailure, match="torchrun --nproc-per-node=2"):
        start(pipeline="demo", steps=1, processes=2, source_sha256="")


@pytest.mark.parametrize("seed", ["one", "-1", ""])
def test_refuses_a_seed_that_is_no_number(
    seed: str, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RPEG_SEED", seed)
    with pytest.raises(RuntimeFailure, match="RPEG_SEED"):
        launch()


def test_a_checkpoint_without_a_part_names_it(launch: Launch, train: Train) -> None:
    train(launch())
    longer = launch(steps=6)
    longer.attach("critic", Counter(longer))
    with pytest.raises(CheckpointFailure, match=r"no critic\.pt.*counter\.pt"):
        longer.restore()
