"""How a process whose work is done exits: among several, the interpreter is not taken apart."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROGRAM = """
import atexit, os, sys
from rpeg.runtime import world
from rpeg.runtime.errors import report_failures

class Last:
    def __del__(self, write=os.write):
        write(1, b"taken apart\\n")

last = Last()
world.first_to_fail = lambda: True
report_failures()
atexit.register(print, "at exit")
world.exit_at_once()
if sys.argv[1:]:
    raise RuntimeError("after the end")
"""


@pytest.mark.parametrize(
    ("processes", "failing", "code", "said"),
    [
        ("2", [], 0, "at exit\n"),
        ("2", ["failing"], 1, "at exit\n"),
        ("1", [], 0, "at exit\ntaken apart\n"),
        ("1", ["failing"], 1, "at exit\ntaken apart\n"),
    ],
)
def test_what_is_done_at_exit(processes: str, failing: list[str], code: int, said: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, *failing],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "WORLD_SIZE": processes},
    )
    assert (ended.returncode, ended.stdout) == (code, said)
    assert ("RuntimeError: after the end" in ended.stderr) == bool(failing)
