"""Where output goes: a file that is whole or not there, or standard output."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from rpeg.tools.console import FAILED, OK, Failure


def write(text: str, target: str | None) -> int:
    """Writes to a file, or to standard output; gives the exit code. Raises Failure."""
    if target in (None, "-"):
        return _to_stdout(text)
    assert target is not None
    path = Path(target)
    try:
        if path.exists() and not path.is_file():  # a device, a pipe
            path.write_text(text, encoding="utf-8")
        else:
            _replace(path, text)
    except OSError as error:
        raise Failure(f"{path} can't be written: {error.strerror}") from None
    return OK


def _replace(path: Path, text: str) -> None:
    """A temporary file beside the target takes its place in one step."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        mode = path.stat().st_mode if path.exists() else 0o666 & ~_umask()
        os.chmod(name, mode & 0o777)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _to_stdout(text: str) -> int:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has gone; nothing may be written at exit either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return OK
