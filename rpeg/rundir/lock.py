"""One launch per folder: locks that end with the process that holds them."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from rpeg.rundir.failures import RunFolderFailure

LAUNCH, TRAIN = ".launch", ".lock"
"""Files that are locked: by `rpeg run` and `rpeg launch`, and by the program itself."""
LOCKS = (LAUNCH, TRAIN)

_LOOKED_SECONDS = 0.05


class FolderLock:
    """Keeps others out of a run's folder, from `take` until `release` or the process's end."""

    def __init__(self, folder: Path, name: str = TRAIN) -> None:
        self._folder = folder
        self._path = folder / name
        self._file: IO[str] | None = None

    def look(self) -> None:
        """Raises RunFolderFailure if another process, which it names, has the folder now. Writes
        nothing.
        """
        if self._path.exists():
            with self._path.open() as file:
                self._lock(file, fcntl.LOCK_SH)

    def take(self) -> None:
        """Raises RunFolderFailure as `look` does."""
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._path.open("a+")
        self._lock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        self._file = file

    def release(self) -> None:
        """Lets others in."""
        if self._file is not None:
            self._file.close()
            self._file = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Takes it for the body."""
        self.take()
        try:
            yield
        finally:
            self.release()

    def _lock(self, file: IO[str], kind: int) -> None:
        """Tries twice: one who looks holds it for a moment."""
        for pause in (0.0, _LOOKED_SECONDS):
            time.sleep(pause)
            if _locked(file, kind):
                return
        file.seek(0)
        holder = file.read() or "unknown"
        file.close()
        raise RunFolderFailure(
            f"another process (pid {holder}) is training in {self._folder}; "
            "wait for it, or choose another folder (--run-dir, RPEG_RUN_DIR)"
        )


def _locked(file: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
