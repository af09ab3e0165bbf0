"""One layout's replay: the generated program itself, launched as it is, reading a recording."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rpeg.runtime.recordings.recording import Recording, load
from rpeg.runtime.recordings.replay import FOLDER
from rpeg.tools.commands.compile import write_package
from rpeg.tools.compiling import Choice, compile_text
from rpeg.tools.console import Source
from rpeg.tools.launching import environment, launch

Prepare = Callable[[Path], None]
"""What may happen to a package between its compilation and its launch."""
_SHOWN = 8
"""Lines of a failed program's output."""


class ProgramFailed(Exception):
    """A program ended with an error; the text is what it said."""


@dataclass(frozen=True)
class Replaying:
    """What all layouts of one verification have in common."""

    source: Source
    """The hardened pipeline."""
    folder: Path
    """Holds `recording/`; takes `LAYOUT/program`, `LAYOUT/run` and `LAYOUT/log`."""
    seed: int
    allow_python: bool
    prepare: Prepare | None = None

    def run(self, layout: str) -> Recording:
        """What the program of a layout computes. Raises Failure, ProgramFailed."""
        place = self.folder / layout
        place.mkdir(parents=True)
        choice = Choice(layout=layout, allow_python=self.allow_python, needs_files=True)
        package = place / "program"
        write_package(compile_text(self.source, choice), self.source, package, force=False)
        if self.prepare is not None:
            self.prepare(package)
        variables = environment(place / "run", self.seed, self.source.folder, self.allow_python) | {
            "RPEG_REPLAY": str(self.folder / "recording")
        }
        with (place / "log").open("w", encoding="utf-8") as log:
            code = launch(package, variables, log)
        if code != 0:
            raise ProgramFailed(_last_words(place / "log", code))
        return load(place / "run" / FOLDER)


def _last_words(log: Path, code: int) -> str:
    """What a program said last, from its error message on."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    errors = [k for k, line in enumerate(lines) if line.startswith("error:")]
    first = errors[0] if errors else max(0, len(lines) - _SHOWN)
    said = os.linesep.join(lines[first : first + _SHOWN]).strip()
    return said or f"it ended with exit code {code} and said nothing"
