"""`rpeg run` refuses before it does anything: not a byte of a run's folder changes, no torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rpeg.rundir.folder import RunFolder, RunRecord
from rpeg.rundir.lock import LAUNCH, LOCKS, TRAIN, FolderLock
from rpeg.tools.commands.compile import write_package
from rpeg.tools.compiling import Choice, check_text, placed
from rpeg.tools.console import read
from tests.unit.tools.commands import Shell, message

RUN = ("run", "p.rpeg", "--processes", "1")


@pytest.fixture
def folder(shell: Shell) -> Path:
    """The folder of a run of `p.rpeg` that has finished a step."""
    source, choice = read("p.rpeg"), Choice(processes=1)
    checked = check_text(source, choice)
    run = RunFolder((shell.folder / "runs" / "p").resolve())
    write_package(placed(checked, source, choice), source, run.path / "program")
    run.write(RunRecord("p", checked.source_sha256, seed=0, steps=3, processes=1))
    run.metrics.write_text('{"step": 1, "seconds": 1.0, "loss": 0.5}\n')
    for name in LOCKS:
        (run.path / name).write_text("17")
    return run.path


State = dict[str, tuple[int, bytes]]


def state(folder: Path) -> State:
    """Path -> when it was written last, and its bytes."""
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in (folder, *folder.rglob("*"))
    }


def refused(shell: Shell, folder: Path, said: str, *words: str) -> None:
    """Checks that nothing but one message comes of it."""
    before = state(folder)
    done = shell(*RUN, *words)
    assert (done.code, done.out) == (1, "")
    assert said in message(done.err)
    assert state(folder) == before


@pytest.mark.parametrize("name", [LAUNCH, TRAIN])
def test_a_folder_in_use(name: str, shell: Shell, folder: Path) -> None:
    with FolderLock(folder, name).held():
        refused(shell, folder, f"is training in {folder}")
        refused(shell, folder, f"is training in {folder}", "--seed", "1")


def test_another_run(shell: Shell, folder: Path) -> None:
    refused(shell, folder, "holds a run with seed 0, this program has 1;", "--seed", "1")
    shell.write(("clip_low=0.2", "clip_low=0.1"))
    refused(shell, folder, "holds a run with source hash")
    (folder / "run.json").write_text("{")
    refused(shell, folder, "run.json cannot be read")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("rows.jsonl", "none.jsonl", "none.jsonl: sources without a scheme are paths"),
        ('"tiny"', '"none"', "there is no"),
        ('"tiny"', '"run:before/actor"', "run the pipeline `before` first"),
    ],
    ids=["data", "model", "exported model"],
)
def test_what_is_missing(old: str, new: str, said: str, shell: Shell, folder: Path) -> None:
    shell.write((old, new))
    refused(shell, folder, said)


def test_an_edited_program(shell: Shell, folder: Path) -> None:
    program = folder / "program" / "program_all.py"
    program.write_text(program.read_text() + "# mine\n")
    refused(shell, folder, "runs/p/program was edited: run it with `rpeg launch runs/p/program`")


def test_a_layout_that_does_not_fit(shell: Shell, folder: Path) -> None:
    before = state(folder)
    assert shell("run", "p.rpeg", "--layout", "tp3dp5").code == 1
    assert state(folder) == before


def test_an_exported_model_beside_the_run(shell: Shell, folder: Path) -> None:
    exports = folder.parent / "before" / "exports.jsonl"
    exports.parent.mkdir()
    exports.write_text(json.dumps({"model": "actor", "step": 1, "path": "../../tiny"}) + "\n")
    shell.write(('"tiny"', '"run:before/actor"'))
    refused(shell, folder, "holds a run with source hash")


def test_a_finished_run_is_left_as_it_is(shell: Shell, folder: Path) -> None:
    run = RunFolder(folder)
    record = run.read()
    assert record is not None
    run.write(RunRecord("p", record.source_sha256, 0, 300, 1, finished_step=300))
    before = state(folder)
    done = shell(*RUN)
    assert done.code == 0
    assert done.out.startswith("already done: p finished at step 300")
    assert state(folder) == before


def test_no_torch_is_needed_to_refuse(folder: Path) -> None:
    code = (
        "import sys; from rpeg.tools.rpeg import main; "
        "print(main(['run', 'p.rpeg', '--seed', '1']), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "1 False\n"
    assert done.stderr.startswith("error: ")
