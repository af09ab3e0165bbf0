"""What every command shares: reading files, printing messages, exit codes."""

from __future__ import annotations

import argparse
import math
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rpeg.ir.near import near
from rpeg.ir.text.diagnostics import Diagnostic, Position, has_errors, show

OK, FAILED, USAGE = 0, 1, 2
TEXTS = (".rpeg", ".mlir")
MOST_NAMES = 3
"""Files that a message offers."""


class Failure(Exception):
    """A command can't go on; the text says why and what to do."""

    def __init__(
        self, message: str, code: int = FAILED, diagnostics: Sequence[Diagnostic] = ()
    ) -> None:
        super().__init__(message)
        self.code = code
        self.diagnostics = diagnostics
        """The same as messages about a text, where it is about one."""


class Reported(Failure):
    """The same, with the messages already printed."""

    def __init__(self, diagnostics: Sequence[Diagnostic] = ()) -> None:
        super().__init__("", diagnostics=diagnostics)


@dataclass(frozen=True)
class Source:
    """A text and where it came from."""

    path: Path
    text: str
    pipeline: str | None = None

    @property
    def name(self) -> str:
        """What messages call it."""
        return str(self.path)

    @property
    def folder(self) -> Path:
        """Where its relative sources are."""
        return self.path.resolve().parent


def read(argument: str) -> Source:
    """The text of `FILE` or `FILE:PIPELINE`. Raises Failure."""
    path, pipeline = Path(argument), None
    if not path.exists() and ":" in argument:
        name, _, chosen = argument.rpartition(":")
        path, pipeline = Path(name), chosen
    try:
        return Source(path, decoded(path.read_bytes(), str(path)), pipeline)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}{_instead(path)}") from None


def _instead(path: Path) -> str:
    """What to give in place of a path that is not a file."""
    folder = path if path.is_dir() else path.parent
    suffix = path.suffix if path.suffix in TEXTS else TEXTS[0]
    names = sorted(p.name for p in folder.glob(f"*{suffix}") if p.is_file())
    close = near(path.stem, [Path(name).stem for name in names])
    if path.exists() and not path.is_dir():
        return ""
    if close and not path.is_dir():
        return f"; did you mean {folder / (close[0] + suffix)}?"
    if not names:
        return f"; give the path of a {suffix} file"
    shown = [str(folder / name) for name in names[:MOST_NAMES]]
    more = ["..."] if len(names) > MOST_NAMES else []
    return f"; give a file, such as {', '.join([*shown, *more])}"


def language_only(source: Source, command: str) -> None:
    """Raises Failure for MLIR, which other commands read."""
    if source.path.suffix == ".mlir":
        typed = shlex.quote(str(source.path))
        raise Failure(f"{command} takes .rpeg text; for .mlir: rpeg-opt {typed}", USAGE)


def standard_input() -> Source:
    """The text that is piped in. Raises Failure."""
    return Source(Path("<stdin>"), decoded(sys.stdin.buffer.read(), "<stdin>"))


def decoded(data: bytes, name: str) -> str:
    """The text of some bytes. Raises Failure."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - (data.rfind(b"\n", 0, error.start) + 1) + 1
        text = f"this is not UTF-8 text (byte {error.start} of the file)"
        found = Diagnostic(Position(line, column), text, file=name)
        raise Failure(f"{name}:{line}:{column}: {text}", diagnostics=[found]) from None


def tell(failure: Failure) -> None:
    """Reports why a command can't go on, unless that was reported already."""
    if not isinstance(failure, Reported):
        print(f"error: {failure}", file=sys.stderr)


def report(diagnostics: Iterable[Diagnostic], source: Source) -> None:
    """Prints messages; raises Reported if one is an error."""
    found = list(diagnostics)
    show(found, {source.name: source.text}, sys.stderr)
    if has_errors(found):
        raise Reported(found)


def folder(text: str) -> Path:
    """The path of a folder to write."""
    if not text:
        raise argparse.ArgumentTypeError("the name of the folder is empty")
    return Path(text)


def positive(text: str) -> int:
    """A whole number of at least 1."""
    return _whole(text, 1)


def natural(text: str) -> int:
    """A whole number of at least 0."""
    return _whole(text, 0)


def _whole(text: str, least: int) -> int:
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least {least}, not {text}")
    return int(text)


def temperature(text: str) -> float:
    """A finite number of at least 0."""
    return _number(text, "a number of at least 0", lambda value: 0 <= value < math.inf)


def probability(text: str) -> float:
    """A number above 0 and at most 1."""
    return _number(text, "a number above 0 and at most 1", lambda value: 0 < value <= 1)


def _number(text: str, what: str, allowed: Callable[[float], bool]) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not allowed(value):
        raise argparse.ArgumentTypeError(f"expected {what}, not {text}")
    return value
