"""Runs passes one after the other: verified, timed, counted, shown as the command line asks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from rpeg.ir.registry import context
from rpeg.ir.text.diagnostics import Diagnostic, DiagnosticsError
from rpeg.ir.text.sources import Sources
from rpeg.passes.base import RpegPass
from rpeg.tools.opt.passes import apply, remarks, verify_after
from rpeg.tools.opt.reproducer import reproducer
from rpeg.tools.opt.statistics import Statistics
from rpeg.tools.opt.targets import mlir
from rpeg.tools.opt.timing import Timer


@dataclass(frozen=True)
class Watch:
    """What is done around each pass."""

    verify_each: bool = True
    """Verify after each pass, not only after the last."""
    before_all: bool = False
    after_all: bool = False
    after_change: bool = False
    """Show the IR where its text changed."""
    remarks: bool = False
    """Say where a pass of ours does not apply, and why."""
    reproducer: str | None = None
    """Where the reproducer of a crash goes; a temporary file without it."""
    show: Callable[[ModuleOp], str] = mlir


class PassRunner:
    """Runs the passes on one module after the other. Raises DiagnosticsError, Crash, Failure."""

    def __init__(self, passes: Sequence[ModulePass], watch: Watch, timer: Timer) -> None:
        self.statistics = Statistics()
        self._passes = passes
        self._watch = watch
        self._timer = timer
        self._context = context()

    def run(self, module: ModuleOp, sources: Sources) -> list[Diagnostic]:
        """Runs every pass, up to the first that is refused, crashes or breaks the IR; gives their
        remarks.
        """
        found: list[Diagnostic] = []
        for number, step in enumerate(self._passes):
            text = self._before(step, module)
            with self._timer.span(str(step), number):
                self._one(number, step, module, sources)
            self._after(step, module, text)
            found += self._remarks(step, sources)
        return found

    def _remarks(self, step: ModulePass, sources: Sources) -> list[Diagnostic]:
        found = remarks(step, sources) if self._watch.remarks else []
        if isinstance(step, RpegPass):
            step.missed.clear()  # it runs on the next module too
        return list(dict.fromkeys(found))

    def _one(self, number: int, step: ModulePass, module: ModuleOp, sources: Sources) -> None:
        given = module.clone()
        try:
            with self._timer.span("run"), self.statistics.of(number, step, module):
                apply(step, self._context, module, sources)
            if self._watch.verify_each or number == len(self._passes) - 1:
                with self._timer.span("verify"):
                    self._verify(step, module, sources)
        except DiagnosticsError:
            raise
        except Exception as error:
            raise reproducer(step, given, error, self._watch.reproducer) from error

    def _verify(self, step: ModulePass, module: ModuleOp, sources: Sources) -> None:
        who = step.name if self._watch.verify_each else "the passes"
        try:
            verify_after(who, module, sources)
        except DiagnosticsError:
            if self._watch.after_all or self._watch.after_change:
                # The custom form of an operation may not print one that breaks its rules.
                _dump(f"After {step} Failed", mlir(module, generic=True))
            raise

    def _before(self, step: ModulePass, module: ModuleOp) -> str:
        """The text of the IR, where it will be compared or shown."""
        if not (self._watch.before_all or self._watch.after_change):
            return ""
        text = self._watch.show(module)
        if self._watch.before_all:
            _dump(f"Before {step}", text)
        return text

    def _after(self, step: ModulePass, module: ModuleOp, before: str) -> None:
        if not (self._watch.after_all or self._watch.after_change):
            return
        text = self._watch.show(module)
        if self._watch.after_all or text != before:
            _dump(f"After {step}", text)


def _dump(what: str, text: str) -> None:
    print(f"// -----// IR Dump {what} //----- //", text, sep="\n", file=sys.stderr)
