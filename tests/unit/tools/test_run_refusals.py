"""`rpeg run` and `rpeg launch` refuse before anything is done: no byte of a folder changes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from rpeg.rundir.failures import CheckpointFailure, RunFolderFailure
from rpeg.rundir.folder import RunFolder, RunRecord
from rpeg.rundir.lock import LAUNCH, LOCKS, TRAIN, FolderLock
from rpeg.rundir.manifest import FileRecord, Manifest
from rpeg.tools.commands.compile import write_package
from rpeg.tools.compiling import Choice, check_text, compile_text, placed
from rpeg.tools.console import read
from rpeg.tools.continuing import refuse_other_batches
from tests.unit.tools.commands import Shell, message

EXAMPLE = Path(__file__).parents[3] / "examples" / "async_two_pools.rpeg"
RUN = ("run", "p.rpeg", "--processes", "1")
LAUNCH_IT = ("launch", "runs/p/program")


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


def refused(
    shell: Shell, folder: Path, said: str, *words: str, command: Sequence[str] = RUN
) -> None:
    """Checks that nothing but one message comes of it."""
    before = state(folder)
    done = shell(*command, *words)
    assert (done.code, done.out) == (1, "")
    assert said in message(done.err)
    assert state(folder) == before


@pytest.mark.parametrize("name", [LAUNCH, TRAIN])
def test_a_folder_in_use(name: str, shell: Shell, folder: Path) -> None:
    with FolderLock(folder, name).held():
        refused(shell, folder, f"is training in {folder}")
        refused(shell, folder, f"is training in {folder}", "--seed", "1")
        refused(shell, folder, f"is training in {folder}", command=LAUNCH_IT)


@pytest.fixture
def compiled(shell: Shell) -> tuple[str, ...]:
    """Launches a program that was compiled elsewhere."""
    assert shell("compile", "p.rpeg", "-o", "out", "--processes", "1").code == 0
    return ("launch", "out")


def test_a_launched_package_keeps_others_out(shell: Shell, compiled: tuple[str, ...]) -> None:
    """The program of this one tells whether the folder can be had."""
    (shell.folder / "out" / "launch.sh").write_text('"$PYTHON" look.py\n')
    (shell.folder / "look.py").write_text(LOOK)
    assert shell(*compiled).code == 0
    assert (shell.folder / "looked").read_text() == "is training in"


LOOK = """
import os
from pathlib import Path
from rpeg.rundir.failures import RunFolderFailure
from rpeg.rundir.lock import LAUNCH, FolderLock
try:
    FolderLock(Path(os.environ["RPEG_RUN_DIR"]), LAUNCH).look()
except RunFolderFailure as error:
    Path("looked").write_text("is training in" if "runs/p" in str(error) else str(error))
"""


def test_a_package_that_does_not_say_what_it_is(shell: Shell, compiled: tuple[str, ...]) -> None:
    (shell.folder / "out" / "plan.json").unlink()
    refused(shell, shell.folder, "out/plan.json does not say which pipeline", command=compiled)


def test_a_folder_of_somebody_else(shell: Shell, compiled: tuple[str, ...]) -> None:
    mine = shell.folder / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text("")
    for command in (RUN, compiled):
        said = f"{mine} exists and is not the folder of a run, for it holds thesis.tex"
        refused(shell, mine, said, "--run-dir", "mine", command=command)
    assert "is not a package of rpeg" in shell("compile", "p.rpeg", "-o", "mine").err


def test_a_folder_where_no_step_was_finished(shell: Shell, folder: Path) -> None:
    (folder / "run.json").unlink()
    (folder / "metrics.jsonl").unlink()
    (folder / ".program-0").mkdir()
    RunFolder(folder).refuse_foreign()


def test_logs_in_a_new_folder(shell: Shell) -> None:
    """`rpeg run ... > mine/said.txt`, `| tee mine/log`, and a scheduler's `slurm-17.out`."""
    mine = shell.folder / "mine"
    mine.mkdir()
    for name in ("log", "slurm-17.out"):
        (mine / name).write_text("")
    RunFolder(mine).refuse_foreign()
    look = (
        "from pathlib import Path; from rpeg.rundir.folder import RunFolder; "
        "RunFolder(Path('mine')).refuse_foreign()"
    )
    for stream in ("1", "2"):
        command = f'"{sys.executable}" -c "{look}" {stream}> mine/said.txt'
        assert subprocess.run(["bash", "-c", command]).returncode == 0
    with pytest.raises(RunFolderFailure, match=r"it holds said.txt"):
        RunFolder(mine).refuse_foreign()


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("y.buffer.0-of-2", "holds batches that were sampled ahead (y.buffer)"),
        ("y.flight", "samples are in flight (y.flight), and this program samples in index order"),
    ],
)
def test_a_checkpoint_of_another_order(part: str, said: str, shell: Shell, folder: Path) -> None:
    write_checkpoint(folder, "run", "train", part)
    refused(shell, folder, said)
    refused(shell, folder, said, command=LAUNCH_IT)


def write_checkpoint(run: Path, *parts: str) -> None:
    """One that says that it holds these parts."""
    checkpoint = run / "checkpoints" / "step-000001"
    checkpoint.mkdir(parents=True)
    nothing = FileRecord(0, "")
    Manifest(1, 1, {}, {f"{part}.pt": nothing for part in parts}).write(checkpoint)


def kept(shell: Shell, choice: Choice, *parts: str) -> None:
    """Whether programs find their place in a checkpoint with these parts."""
    source = read(str(EXAMPLE))
    module = compile_text(source, choice)
    write_checkpoint(shell.folder / "kept", *parts)
    refuse_other_batches(shell.folder / "kept", module)


def test_programs_go_on_with_what_they_keep_themselves(shell: Shell) -> None:
    kept(shell, Choice(layout="dp1"), "y.buffer.0-of-1")


def test_programs_go_on_with_what_is_in_flight(shell: Shell) -> None:
    kept(shell, Choice(plan="two", order="completion"), "y.flight")


def test_completion_order_does_not_begin_within_a_run(shell: Shell) -> None:
    with pytest.raises(CheckpointFailure, match=r"index order.*\(y.flight\): resume with --order"):
        kept(shell, Choice(plan="two", order="completion"), "train")


@pytest.mark.parametrize("command", [RUN, LAUNCH_IT])
def test_versions_that_are_none(
    shell: Shell, folder: Path, command: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RPEG_VERSIONS", "bogus")
    said = "RPEG_VERSIONS must be newest, oldest or a run's metrics.jsonl, not `bogus`"
    refused(shell, folder, said, command=command)


def test_another_run(shell: Shell, folder: Path) -> None:
    said = "holds a run with seed 0, this program has 1;"
    refused(shell, folder, said, "--seed", "1")
    refused(shell, folder, said, "--seed", "1", command=LAUNCH_IT)
    shell.write(("clip_low=0.2", "clip_low=0.1"))
    refused(shell, folder, "an option that changes it (--set, --staleness, --correction)")
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


def finish(folder: Path) -> None:
    """Has the run's record say that all its steps are done."""
    run = RunFolder(folder)
    record = run.read()
    assert record is not None
    run.write(RunRecord("p", record.source_sha256, 0, 300, 1, finished_step=300))


@pytest.mark.parametrize("command", [RUN, LAUNCH_IT])
def test_a_finished_run_is_left_as_it_is(
    command: Sequence[str], shell: Shell, folder: Path
) -> None:
    finish(folder)
    (folder / "program" / "__pycache__").mkdir()  # of an earlier launch
    before = state(folder)
    done = shell(*command)
    assert done.code == 0
    assert done.out.startswith("already done: p finished at step 300")
    assert state(folder) == before


def test_an_edited_program_may_have_more_steps(shell: Shell, folder: Path) -> None:
    """Only it knows: it is started."""
    finish(folder)
    (folder / "program" / "launch.sh").write_text("touch started\n")
    assert shell(*LAUNCH_IT).out == ""
    assert (shell.folder / "started").exists()


def test_no_torch_is_needed_to_refuse(folder: Path) -> None:
    code = (
        "import sys; from rpeg.tools.rpeg import main; "
        "print(main(['run', 'p.rpeg', '--seed', '1']), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "1 False\n"
    assert done.stderr.startswith("error: ")
