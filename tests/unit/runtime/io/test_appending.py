"""Lines are appended by a thread: in order, all of them, and what fails is told."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rpeg.rundir import appending
from rpeg.rundir.appending import Appender

DYING = """
import sys, time
from pathlib import Path
from rpeg.rundir import appending
from rpeg.rundir.appending import Appender

if sys.argv[2:]:
    from rpeg.runtime import world
    from rpeg.runtime.errors import report_failures

    world.processes = lambda: 2
    world.first_to_fail = lambda: True
    report_failures()

write = appending.jsonl.append_text
appending.jsonl.append_text = lambda path, text: (time.sleep(0.1), write(path, text))
appender = Appender()
for k in range(3):
    appender.append(Path(sys.argv[1]), f"{k}\\n")
raise RuntimeError("over")
"""


def test_lines_come_in_order_while_the_caller_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, may_write = appending.jsonl.append_text, threading.Event()

    def slow(path: Path, text: str) -> None:
        may_write.wait()
        write(path, text)

    monkeypatch.setattr(appending.jsonl, "append_text", slow)
    appender, files = Appender(), [tmp_path / "a", tmp_path / "b"]
    for k in range(10):
        appender.append(files[k % 2], f"{k}\n")
    assert not files[0].exists()
    may_write.set()
    appender.settle()
    assert [file.read_text().split() for file in files] == [list("02468"), list("13579")]


def test_what_fails_is_raised_by_the_next_call(tmp_path: Path) -> None:
    appender = Appender()
    appender.append(tmp_path, "a folder is not a file\n")
    with pytest.raises(IsADirectoryError):
        appender.settle()
    appender.append(tmp_path / "file", "x\n")
    appender.settle()
    assert (tmp_path / "file").read_text() == "x\n"


@pytest.mark.parametrize("among", [(), ("others",)])
def test_a_process_that_fails_has_written_what_it_was_told(
    tmp_path: Path, among: tuple[str, ...]
) -> None:
    file = tmp_path / "lines"
    command = [sys.executable, "-c", DYING, str(file), *among]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr.endswith("RuntimeError: over\n")
    assert file.read_text() == "0\n1\n2\n"
