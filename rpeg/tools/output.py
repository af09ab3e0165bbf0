"""What commands write: whole or not at all. A file goes into a folder that is there, as with any
compiler: a name with a mistake would end up somewhere else. A folder is made with those above it.

A command calls `refuse` before its work, so that a name that can't be written costs no waiting, and
names what it reads: none of that is ever replaced.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rpeg.tools.console import USAGE, Failure


def refuse(path: Path, inputs: Iterable[Path], endings: Sequence[str] = ()) -> None:
    """Raises Failure where no file can be written, where the file is one of the inputs under any
    name, and where its name has none of the endings, if there are some. Writes nothing.
    """
    if path.is_dir():
        raise _failure(path, "it is a folder")
    _refuse(path)
    if not path.parent.exists():
        raise _failure(path, f"there is no folder {path.parent}: make it, or name another")
    if any(_same(path, read) for read in inputs):
        raise Failure(f"{path} is read by this command: choose another file to write", USAGE)
    if endings and path.suffix not in endings and not _is_device(path):
        raise Failure(f"{path}: the name must end in {' or '.join(endings)}", USAGE)


def refuse_folder(path: Path, inputs: Iterable[Path]) -> None:
    """Raises Failure where no folder can be made or replaced, and where an input is that folder or
    lies in it. Writes nothing.
    """
    read_here = list(filter(Path.exists, inputs))
    if any(_same(path, read) for read in read_here if read.is_file()):
        raise Failure(f"{path} is read by this command: choose a folder to write", USAGE)
    if path.exists() and not path.is_dir():
        raise _failure(path, "it is not a folder")
    _refuse(path)
    for read in read_here:
        if any(_same(path, folder) for folder in (read, *read.resolve().parents)):
            told = f"{path} holds {read}, which this command reads"
            raise Failure(f"{told}: choose another folder to write", USAGE)


def _same(path: Path, other: Path) -> bool:
    """Whether two names are of one file, through links; a device may be read and written."""
    return path.exists() and other.exists() and path.samefile(other) and not _is_device(path)


def _is_device(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()


def _refuse(path: Path) -> None:
    above = next((folder for folder in path.parents if folder.exists()), path)
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
