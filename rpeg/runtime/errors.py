"""Every failure that a user of a generated program can meet, in one place.

A message is one screen: what went wrong, where, and what to change. `report_failures` turns an
uncaught failure into `error: ...` and exit code 1; a traceback is left to bugs.
"""

from __future__ import annotations

import signal
import sys
from types import TracebackType

from rpeg.lifetime import INTERRUPTED, say_terminated
from rpeg.rundir.failures import CheckpointFailure as CheckpointFailure
from rpeg.rundir.failures import DataFailure as DataFailure
from rpeg.rundir.failures import ModelFailure as ModelFailure
from rpeg.rundir.failures import RunFolderFailure as RunFolderFailure
from rpeg.rundir.failures import RuntimeFailure as RuntimeFailure
from rpeg.runtime import world

_SHOW = sys.excepthook
"""Shows a traceback. Torch puts a hook of its own in front when a world is joined, and that one
loses what is printed just before a process exits at once.
"""


class LayoutFailure(RuntimeFailure):
    """Processes, layouts and batch sizes do not fit together."""


class VerifierFailure(RuntimeFailure):
    """A verifier's source cannot be used, or it failed on a whole batch."""


class GenerationFailure(RuntimeFailure):
    """An engine cannot generate what was asked for."""


class WeightMismatch(RuntimeFailure):
    """An engine holds other weights than the register published."""


class ReplayFailure(RuntimeFailure):
    """A program asks for what the recording that it replays does not hold."""


class BufferFailure(RuntimeFailure):
    """A batch is put into a full buffer, or taken from an empty one."""


class StalenessExceeded(RuntimeFailure):
    """A trained token is older than the pipeline allows."""


def report_failures() -> None:
    """From now on an uncaught RuntimeFailure prints `error: ...` instead of a traceback.

    In a world of several only the process that fails first speaks: the others fail because it is
    gone. Interrupts, and processes that could not speak, are reported by the launcher. A process on
    its own reports itself that SIGTERM ended it. To be called again once a world is joined.
    """

    def report(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if not world.first_to_fail():
            pass
        elif isinstance(error, RuntimeFailure):
            print(f"error: {error}", file=sys.stderr, flush=True)
        elif world.is_loss(error):
            text = f"error: process {world.process()} lost another one, which may have said why"
            print(text, file=sys.stderr, flush=True)
        elif not issubclass(kind, KeyboardInterrupt):
            _SHOW(kind, error, trace)
        elif world.processes() == 1:
            print(INTERRUPTED, file=sys.stderr, flush=True)
        if world.processes() > 1:
            world.exit_now(1)  # threads wait for other processes, and can't be waited for any more

    sys.excepthook = report
    if world.processes() == 1:
        signal.signal(signal.SIGTERM, say_terminated)
