"""A file that reproduces a crash: the IR that a pass crashed on, and the command line."""

from __future__ import annotations

import os
import shlex
import tempfile
from typing import TYPE_CHECKING

from rpeg import __version__
from rpeg.tools.opt.output import write
from rpeg.tools.opt.targets import mlir

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp
    from xdsl.passes import ModulePass


class Crash(Exception):
    """An internal error of a pass: a mistake of the pass, not of its input."""

    def __init__(self, step: ModulePass, path: str) -> None:
        super().__init__(step.name)
        self.step = step
        self.path = path

    def __str__(self) -> str:
        return (
            f"internal error in {self.step.name}, a mistake of the pass and not of the input\n"
            f"the IR before it is in {self.path}; to see this again:\n"
            f"  {command(self.step, self.path)}"
        )


def reproducer(step: ModulePass, before: ModuleOp, error: Exception, path: str | None) -> Crash:
    """Writes the file, at `path` or as a temporary one. Raises Failure if it can't be written."""
    target = path or _temporary()
    write(_text(step, before, error, target), target)
    return Crash(step, target)


def command(step: ModulePass, path: str) -> str:
    """What to type."""
    return shlex.join(["rpeg-opt", path, "-p", str(step)])


def _text(step: ModulePass, before: ModuleOp, error: Exception, path: str) -> str:
    import platform  # these two are slow to import, and crashes are rare
    from importlib.metadata import version

    what = " ".join(f"{type(error).__name__}: {error}".split())
    made = f"rpeg {__version__}, xdsl {version('xdsl')}, Python {platform.python_version()}"
    notes = (f"{step.name} crashed: {what}", made, command(step, path))
    return "".join(f"// {note}\n" for note in notes) + mlir(before)


def _temporary() -> str:
    handle, path = tempfile.mkstemp(prefix="rpeg-opt-crash-", suffix=".mlir")
    os.close(handle)
    return path
