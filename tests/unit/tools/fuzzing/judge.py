"""What every run of rpeg-opt keeps to, whatever its input; and which rules the input broke."""

from __future__ import annotations

import random
import re
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import TextIO

import pytest

from rpeg.frontend.parse import parse
from rpeg.ir.text.diagnostics import Diagnostic, DiagnosticsError
from rpeg.ir.text.diagnostics import show as really_show
from rpeg.ir.text.parse import parse_module
from rpeg.tools import rpeg_opt
from rpeg.tools.compiling import Choice, compile_text
from rpeg.tools.console import Failure, Source
from tests.unit.tools.opt import Run, opt

PATIENCE = 30
"""Seconds of the processor that one run may take: a busy machine is not a text without an end."""
COMPILED = 1 / 3
"""The share of sound texts that are compiled too."""
_MESSAGE = re.compile(r"<stdin>:\d+:\d+: (error|warning|note): \S")

PIPELINES = (
    "rpeg-canonicalize",
    "rpeg-canonicalize,rpeg-eliminate-old-logprob,rpeg-eliminate-reference",
    "rpeg-eliminate-dead-stages,cse",
    "rpeg-annotate-parallelism{dp=2}",
    "rpeg-annotate-parallelism,rpeg-fuse-inference,rpeg-schedule",
    "rpeg-annotate-parallelism{dp=2},rpeg-schedule,rpeg-lower-to-programs",
    "rpeg-schedule",
    "rpeg-lower-to-programs",
    "canonicalize,cse,dce",
    "rpeg-bounded-async{staleness=2 correction=icepop}",
    "rpeg-bounded-async{staleness=1 correction=none-if-covered},rpeg-annotate-parallelism",
)


@dataclass
class Tally:
    """What many inputs came to."""

    inputs: int = 0
    parsed: int = 0
    """Inputs without a syntax error."""
    sound: int = 0
    """Inputs without any error."""
    compiled: int = 0
    rules: Counter[str] = field(default_factory=Counter)
    """Inputs that broke a rule, by its code."""

    def add(self, other: Tally) -> None:
        self.inputs += other.inputs
        self.parsed += other.parsed
        self.sound += other.sound
        self.compiled += other.compiled
        self.rules += other.rules

    def __str__(self) -> str:
        counts = ", ".join(f"{n} {what}" for what, n in sorted(self._counts().items()))
        rules = "".join(f"{n:8} {code}\n" for code, n in sorted(self.rules.items()))
        return f"{counts}\n{rules}"

    def _counts(self) -> dict[str, int]:
        return {k: v for k, v in vars(self).items() if isinstance(v, int)}


def judge(text: str, form: str, draw: random.Random, tally: Tally) -> None:
    """Holds rpeg-opt to its promises on a text. Raises AssertionError, or whatever it raised."""
    run, messages = watched("-f", form, "--print-debuginfo", stdin=text)
    held(run, messages, text)
    broken = {d.rule for d in messages if d.rule}
    tally.inputs += 1
    tally.parsed += run.code == 0 or bool(broken) or well_formed(text, form)
    if run.code == 0:
        again, _, problems = parse_module(run.out, "f")
        assert again is not None, (problems, run.out)
        again.verify()  # as xDSL's tools do
        broken |= _survived(text, form, draw, tally)
    tally.rules.update(broken)


def _survived(text: str, form: str, draw: random.Random, tally: Tally) -> set[str]:
    """The rules that a sound text breaks on its way through passes; some are compiled too."""
    tally.sound += 1
    run, messages = watched("-f", form, "-p", draw.choice(PIPELINES), stdin=text)
    held(run, messages, text)
    if form == "rpeg" and draw.random() < COMPILED:
        tally.compiled += compiles(text)
    return {d.rule for d in messages if d.rule}


def well_formed(text: str, form: str) -> bool:
    """Whether a text with a mistake has none of syntax; MLIR's other mistakes all break a rule."""
    return form == "rpeg" and not parse(text, "f")[1]


def compiles(text: str) -> bool:
    """Whether a text compiles; where it does not, there are messages."""
    try:
        with limited(), redirect_stderr(StringIO()):
            compile_text(Source(Path("<stdin>"), text), Choice(processes=1))
    except (Failure, DiagnosticsError):
        return False
    return True


def watched(*arguments: str, stdin: str) -> tuple[Run, Sequence[Diagnostic]]:
    """A run of rpeg-opt, with the messages that it shows."""
    found: list[Diagnostic] = []

    def show(diagnostics: Sequence[Diagnostic], sources: dict[str, str], to: TextIO) -> None:
        found.extend(diagnostics)
        really_show(diagnostics, sources, to)

    with pytest.MonkeyPatch.context() as patch, limited():
        patch.setattr(rpeg_opt, "show", show)
        return opt(*arguments, stdin=stdin), found


def held(run: Run, messages: Sequence[Diagnostic], text: str) -> None:
    """A code, output or an error, and every message at a place of the text."""
    assert run.code in (0, 1), run.err
    assert bool(run.out) == (run.code == 0), run.err
    assert run.code == 0 or any(d.severity == "error" for d in messages), run.err
    assert "Traceback" not in run.err, run.err
    assert len(run.messages) == len([*filter(_MESSAGE.match, run.messages)]), run.err
    lines = [*text.split("\n"), ""]
    for at in (d.at for d in messages):
        assert 1 <= at.line <= len(lines), (at, run.err)
        assert 1 <= at.column <= len(lines[at.line - 1]) + 2, (at, run.err)


@contextmanager
def limited() -> Iterator[None]:
    """Ends what does not end by itself. Raises TimeoutError."""

    def over(*_: object) -> None:
        raise TimeoutError(f"more than {PATIENCE} s of the processor")

    before = signal.signal(signal.SIGPROF, over)
    signal.setitimer(signal.ITIMER_PROF, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
