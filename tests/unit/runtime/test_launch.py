"""How a launch ends: its exit code, and one line at most."""

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from torch.distributed.elastic.multiprocessing import SignalException

from rpeg.lifetime import AGENT, INTERRUPTED
from rpeg.runtime import launch

ROOT = Path(__file__).parents[3]
ALONE = """
import time
from rpeg.runtime.errors import report_failures
report_failures()
print("up", flush=True)
time.sleep(60)
"""


def test_a_signal_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(options: object) -> None:
        raise SignalException("got a signal", signal.SIGINT)

    monkeypatch.setattr(launch, "torchrun", stopped)
    monkeypatch.setenv(AGENT, "")  # restored afterwards, for what other tests launch
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert launch.main(["--nproc-per-node", "2", "program.py"]) == 130
    finally:
        signal.signal(signal.SIGTERM, before)
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "interrupted: the same command resumes from the last checkpoint, if there is one"
    ]


def test_a_launch_leaves_no_folder_behind(tmp_path: Path) -> None:
    program, temporary = tmp_path / "program.py", tmp_path / "temporary"
    program.write_text("")
    temporary.mkdir()
    command = [sys.executable, "-m", "rpeg.runtime.launch", "--nproc-per-node", "2", str(program)]
    subprocess.run(command, check=True, env=os.environ | {"TMPDIR": str(temporary)})
    assert list(temporary.iterdir()) == []


def launched(package: Path, script: str, *modules: Path) -> subprocess.Popen[str]:
    """`rpeg launch` of a package, in a process group of its own; its program has said `up`.

    A shell has what it starts in the background ignore Ctrl-C, these tests included.
    """
    (package / "launch.sh").write_text(script)
    command = [sys.executable, "-m", "rpeg.tools.rpeg", "launch"]
    process = subprocess.Popen(
        [*command, str(package), "--run-dir", str(package / "run")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (*modules, ROOT)))},
        start_new_session=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


def test_what_is_launched_ends_with_its_parent(tmp_path: Path) -> None:
    parent = launched(tmp_path, "echo up; exec sleep 60\n")
    assert parent.stdout is not None
    parent.kill()
    parent.wait()
    assert parent.stdout.read() == "", "the pipe closes when the child is gone: at once"


def test_a_process_whose_parent_is_gone_already_ends() -> None:
    code = f"from rpeg.lifetime import die_with_parent; die_with_parent({os.getpid()}); print('on')"
    mine = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (mine.returncode, mine.stdout) == (0, "on\n")
    other = code.replace(str(os.getpid()), "1")
    assert subprocess.run([sys.executable, "-c", other]).returncode == -signal.SIGKILL


def test_an_interrupt_while_torch_is_imported_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise KeyboardInterrupt")
    for program in (["-m", "rpeg.runtime.launch"], ["-c", "from rpeg import runtime"]):
        path = os.pathsep.join([str(tmp_path), str(ROOT)])
        environment = os.environ | {"PYTHONPATH": path}
        done = subprocess.run(
            [sys.executable, *program], env=environment, capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (-signal.SIGINT, f"{INTERRUPTED}\n")


def test_an_interrupt_of_the_launcher_alone_reaches_its_program(tmp_path: Path) -> None:
    process = launched(tmp_path, f"exec \"$PYTHON\" -c '{ALONE}'\n")
    process.send_signal(signal.SIGINT)
    assert process.communicate()[0] == f"{INTERRUPTED}\n"
    assert process.returncode == 130


HUB = """
from concurrent.futures import ThreadPoolExecutor
import time

def snapshot_download(name, allow_patterns):
    print("up", flush=True)
    with ThreadPoolExecutor(1) as pool:  # which waits for what it has begun
        pool.submit(time.sleep, 600)
"""
FETCHING = """
from pathlib import Path
from rpeg.runtime.models.model_source import open_source
open_source(Path("none"), "hf:large", 0)
"""


def test_an_interrupt_waits_for_no_download(tmp_path: Path) -> None:
    (tmp_path / "huggingface_hub").mkdir()
    (tmp_path / "huggingface_hub" / "__init__.py").write_text(HUB)
    errors = "HfHubHTTPError = HFValidationError = LocalEntryNotFoundError = OSError"
    (tmp_path / "huggingface_hub" / "errors.py").write_text(errors)
    process = launched(tmp_path, f"exec \"$PYTHON\" -c '{FETCHING}'\n", tmp_path)
    os.killpg(process.pid, signal.SIGINT)
    said = "interrupted: what is fetched by now stays in the cache\n"
    assert process.communicate()[0] == said
    assert process.returncode == 130


def test_sigterm_ends_a_program_too_young_to_speak(tmp_path: Path) -> None:
    process = launched(tmp_path, "echo up; exec sleep 60\n")
    process.terminate()
    assert process.communicate()[0] == f"{INTERRUPTED}\n"
    assert process.returncode == 143


def test_sigterm_to_a_whole_group_is_told_once(tmp_path: Path) -> None:
    process = launched(tmp_path, f"exec \"$PYTHON\" -c '{ALONE}'\n")
    os.killpg(process.pid, signal.SIGTERM)
    assert process.communicate()[0] == f"{INTERRUPTED}\n"
    assert process.returncode == 143
