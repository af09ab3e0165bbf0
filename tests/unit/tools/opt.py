"""Runs rpeg-opt in this process."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from rpeg.tools.rpeg_opt import main

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("*.rpeg"))


@dataclass(frozen=True)
class Run:
    code: int
    out: str
    err: str

    @property
    def messages(self) -> list[str]:
        """Lines of standard error that start a message."""
        return [line for line in self.err.splitlines() if line[:1].strip()]


def opt(*arguments: str, stdin: str | bytes = "") -> Run:
    out, err = io.StringIO(), io.StringIO()
    data = stdin.encode() if isinstance(stdin, str) else stdin
    with _stdin(data), redirect_stdout(out), redirect_stderr(err):
        code = main(list(arguments))
    return Run(code, out.getvalue(), err.getvalue())


@contextmanager
def _stdin(data: bytes) -> Iterator[None]:
    before = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(data))
    try:
        yield
    finally:
        sys.stdin = before
