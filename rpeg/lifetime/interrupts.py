"""Importing this module suppresses the traceback of an interrupt from then on. Modules that import
torch import it first: that takes seconds, in which Ctrl-C is likely.

Only the first process prints a message: the one that launches the others, or is alone.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType

from rpeg.lifetime import INTERRUPTED

_SHOW = sys.excepthook


def _report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        _SHOW(kind, error, trace)
    elif "RANK" not in os.environ:
        print(INTERRUPTED, file=sys.stderr, flush=True)


sys.excepthook = _report
