"""Every failure that a user of a generated program can meet, in one place.

A message is one screen: what went wrong, where, and what to change. `report_failures` turns an
uncaught failure into `error: ...` and exit code 1; a traceback is left to bugs.
"""

from __future__ import annotations

import sys
from types import TracebackType

from rpeg.runtime import world


class RuntimeFailure(Exception):
    """Something that the user can mend; the message says how."""


class LayoutFailure(RuntimeFailure):
    """Processes, layouts and batch sizes do not fit together."""


class RunFolderFailure(RuntimeFailure):
    """The run folder is in use, or holds another run."""


class CheckpointFailure(RuntimeFailure):
    """A checkpoint cannot be read, or does not fit this program."""


class ModelFailure(RuntimeFailure):
    """A model's source, configuration or tokenizer cannot be used."""


class DataFailure(RuntimeFailure):
    """A data set's source or one of its rows cannot be used."""


class VerifierFailure(RuntimeFailure):
    """A verifier's source cannot be used, or it failed on a whole batch."""


class GenerationFailure(RuntimeFailure):
    """An engine cannot generate what was asked for."""


class WeightMismatch(RuntimeFailure):
    """An engine holds other weights than the register published."""


class StalenessExceeded(RuntimeFailure):
    """A trained token is older than the pipeline allows."""


def report_failures() -> None:
    """From now on an uncaught RuntimeFailure prints `error: ...` instead of a traceback."""
    shown_before = sys.excepthook

    def report(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if isinstance(error, RuntimeFailure):
            if world.first_to_fail():
                print(f"error: {error}", file=sys.stderr, flush=True)
        elif issubclass(kind, KeyboardInterrupt):
            if world.rank() == 0:
                print("interrupted: the same command goes on from the last checkpoint", flush=True)
        else:
            shown_before(kind, error, trace)

    sys.excepthook = report
