"""Lines that a run appends to its files, written by a thread: a file system may take its time."""

from __future__ import annotations

import atexit
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

from rpeg.rundir import jsonl


class Appender:
    """Appends whole lines to files, in the order in which it is told, while its caller goes on.

    What it was told is written before the process exits. What fails is raised by the next call.
    """

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._under_way: deque[Future[None]] = deque()
        atexit.register(wait, self._under_way)

    def append(self, path: Path, text: str) -> None:
        """Adds whole lines at the end of a file."""
        while self._under_way and self._under_way[0].done():
            self._under_way.popleft().result()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="appender")
        self._under_way.append(self._thread.submit(jsonl.append_text, path, text))

    def settle(self) -> None:
        """Waits until everything is written."""
        while self._under_way:
            self._under_way.popleft().result()
