"""Processes that end with the one that started them, however it ends."""

from __future__ import annotations

import ctypes
import signal
import sys

_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


def die_with_parent() -> None:
    """From now on the kernel kills this process when its parent ends. Linux only; elsewhere it does
    nothing.

    It survives `exec`, but children don't inherit it.
    """
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
