"""How processes end: with the one that started them, and on SIGTERM in one line."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType
from typing import NoReturn

INTERRUPTED = "interrupted: the same command resumes from the last checkpoint, if there is one"
"""The message of a run that was told to stop."""
TERMINATED = 128 + signal.SIGTERM
"""Exit code of what ends on SIGTERM."""

AGENT = "RPEG_AGENT_PID"
"""Environment variable: the process that launched this one among others."""

_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


def die_with_parent(parent: int | None = None) -> None:
    """From now on the kernel kills this process when its parent ends. Linux only; elsewhere it does
    nothing.

    It survives `exec`, but children don't inherit it. `parent` is the parent's process number, if
    it may have ended already: then this process ends here.
    """
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if parent is not None and os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)


def say_terminated(number: int, frame: FrameType | None) -> NoReturn:
    """A handler of SIGTERM: says so, and ends this process without a traceback. Any further one is
    ignored: a process group and a parent may both send it.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.write(2, f"{INTERRUPTED}\n".encode())  # `print` may be at work where the signal came
    sys.exit(TERMINATED)


@contextmanager
def interrupts_end(said: str) -> Iterator[None]:
    """While it is open, in the main thread, Ctrl-C prints a line and ends this process at once,
    without waiting for threads. In a launch of several processes the launcher prints it.
    """

    def end(number: int, frame: FrameType | None) -> NoReturn:
        if "RANK" not in os.environ:
            os.write(2, f"{said}\n".encode())
        os._exit(128 + number)

    before = signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def terminations() -> Iterator[Event]:
    """While it is open SIGTERM sets the event and does nothing else."""
    came = Event()
    before = signal.signal(signal.SIGTERM, lambda number, frame: came.set())
    try:
        yield came
    finally:
        signal.signal(signal.SIGTERM, before)
