"""How a launch ends: its exit code, and one line at most."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from torch.distributed.elastic.multiprocessing import SignalException

from rpeg.runtime import launch


def test_a_signal_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(options: object) -> None:
        raise SignalException("got a signal", signal.SIGINT)

    monkeypatch.setattr(launch, "torchrun", stopped)
    assert launch.main(["--nproc-per-node", "2", "program.py"]) == 130
    said = capsys.readouterr().err.splitlines()
    assert said == ["interrupted: the same command goes on from the last checkpoint"]


def test_what_is_launched_ends_with_its_parent(tmp_path: Path) -> None:
    (tmp_path / "launch.sh").write_text("echo up; exec sleep 60\n")
    call = f"from rpeg.tools.launching import launch; launch(Path({str(tmp_path)!r}), {{}})"
    code = f"from pathlib import Path; {call}"
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "up\n"
    parent.kill()
    parent.wait()
    assert parent.stdout.read() == "", "the pipe closes when the child is gone: at once"
