"""Files that commands write: whole or not at all, in folders that are made where they are missing.

A command calls `refuse` before its work, so that a name that can't be written costs no waiting.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rpeg.tools.console import Failure


def refuse(path: Path) -> None:
    """Raises Failure where no file can be written. Writes nothing."""
    if path.is_dir():
        raise _failure(path, "it is a folder")
    _refuse(path)


def refuse_folder(path: Path) -> None:
    """Raises Failure where no folder can be made or replaced. Writes nothing."""
    if path.exists() and not path.is_dir():
        raise _failure(path, "it is not a folder")
    _refuse(path)


def _refuse(path: Path) -> None:
    above = next(folder for folder in path.parents if folder.exists())
    if not above.is_dir():
        raise _failure(path, f"{above} is not a folder")
    if not os.access(path if path.exists() else above, os.W_OK):
        raise _failure(path, "Permission denied")


def write(path: Path, text: str) -> None:
    """Replaces the file's text. Raises Failure."""
    with replacing(path) as fresh:
        fresh.write_text(text, encoding="utf-8")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Gives a file to write that takes the place of `path` at the end of the body, and is gone if
    that fails; a device or a pipe itself. Raises Failure for what the system refuses.
    """
    target = path.resolve()  # through links: they stay, and their targets are replaced
    try:
        if target.exists() and not target.is_file():
            yield target
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(f".{target.stem}.{os.getpid()}{target.suffix}")
        try:
            yield fresh
            if target.exists():
                shutil.copymode(target, fresh)
            fresh.replace(target)
        finally:
            fresh.unlink(missing_ok=True)
    except OSError as error:
        raise _failure(path, str(error.strerror)) from None


def _failure(path: Path, why: str) -> Failure:
    return Failure(f"{path} can't be written: {why}")
