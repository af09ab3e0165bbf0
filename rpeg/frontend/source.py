"""Reads a text from a file, with messages instead of exceptions of the system."""

from __future__ import annotations

from pathlib import Path

from rpeg.ir.diagnostics import Diagnostic, DiagnosticsError, Position


def read_source(path: Path) -> str:
    """The text of a file in UTF-8, its line ends as they are.

    Raises:
        DiagnosticsError: there is no such file, or it isn't UTF-8.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _failure(path, Position(1, 1), f"can't be read: {error.strerror}") from error
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        at = Position(before.count("\n") + 1, len(before) - before.rfind("\n"))
        message = f"the byte 0x{data[error.start]:02x} is not UTF-8: save the file as UTF-8"
        raise _failure(path, at, message) from error


def _failure(path: Path, at: Position, message: str) -> DiagnosticsError:
    return DiagnosticsError([Diagnostic(at, message, file=str(path))])
