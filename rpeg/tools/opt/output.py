"""Where output goes: a file that is whole or not there, or standard output."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rpeg.tools import output
from rpeg.tools.console import FAILED, OK


def write(text: str, target: str | None) -> int:
    """Writes to a file, or to standard output; gives the exit code. Raises Failure."""
    if target in (None, "-"):
        return _to_stdout(text)
    assert target is not None
    output.write(Path(target), text)
    return OK


def refuse(target: str | None, read: str) -> None:
    """Raises Failure where `write` could not write, or would replace `FILE` or `FILE:PIPELINE`,
    which is read. Writes nothing.
    """
    if target not in (None, "-"):
        assert target is not None
        output.refuse(Path(target), [Path(read), Path(read.rpartition(":")[0])])


def _to_stdout(text: str) -> int:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has gone; nothing may be written at exit either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return OK
