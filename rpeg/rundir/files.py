"""Writing so that a kill at any moment leaves either the old state or the new one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def write_atomic(path: Path, text: str) -> None:
    """Replaces the file's text in one rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync(path.parent)


def commit_folder(temporary: Path, final: Path) -> None:
    """Makes the folder durable and gives it its final name, in place of an older one."""
    for path in temporary.rglob("*"):
        sync(path)
    sync(temporary)
    outdated = _set_aside(final)
    temporary.rename(final)
    sync(final.parent)
    shutil.rmtree(outdated, ignore_errors=True)


def remove_folder(path: Path) -> None:
    """Removes the folder; a kill leaves none of it under its name."""
    shutil.rmtree(_set_aside(path))


def _set_aside(folder: Path) -> Path:
    """Gives the folder, if it is there, a hidden name to be removed under."""
    aside = folder.with_name(f".{folder.name.removeprefix('.')}.old")
    if aside != folder:
        shutil.rmtree(aside, ignore_errors=True)
        if folder.exists():
            folder.rename(aside)
    return aside


def empty_folder(path: Path) -> Path:
    """The folder, made anew without content."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def sync(path: Path) -> None:
    """Forces a file's or folder's content to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
