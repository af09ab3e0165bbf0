"""`rpeg-opt`: reads a pipeline, runs passes on it, writes it."""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rpeg.ir.text.diagnostics import Diagnostic, DiagnosticsError, has_errors, show
from rpeg.tools.console import FAILED, USAGE, Failure, Source, read, standard_input
from rpeg.tools.opt.arguments import SEPARATORS, parser
from rpeg.tools.opt.chunks import Chunk, split, whole
from rpeg.tools.opt.timing import Timer

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from rpeg.tools.opt.frontends import Read
    from rpeg.tools.opt.running import PassRunner


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; gives its exit code."""
    if argv is None:
        _look_for_garbage_rarely()
    try:
        args = parser().parse_args(argv)
    except SystemExit as end:  # argparse has printed the help or what is wrong
        return int(end.code or 0)
    try:
        return _run(args)
    except Failure as failure:
        print(f"rpeg-opt: error: {failure}", file=sys.stderr)
        return failure.code
    except DiagnosticsError as error:
        show(error.diagnostics, {}, sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        return 130


def _look_for_garbage_rarely() -> None:
    """IR lives until the process ends; looking through it again and again took a quarter of the
    time of large inputs.
    """
    gc.set_threshold(100_000, 50, 50)


def _run(args: argparse.Namespace) -> int:
    from rpeg.tools.opt.output import write
    from rpeg.tools.opt.reproducer import Crash

    if args.list_passes:
        from rpeg.tools.opt.passes import listing

        return write(listing(), None)
    if args.list_rules or args.explain is not None:
        from rpeg.tools.opt.rules import about

        return write(about(args.explain), None)
    try:
        return Driver(args).run()
    except Crash as crash:
        import traceback

        traceback.print_exception(crash.__cause__)
        print(f"rpeg-opt: {crash}", file=sys.stderr)
        return FAILED


@dataclass
class Driver:
    """One run of the command."""

    args: argparse.Namespace
    timer: Timer = field(default_factory=Timer)
    found: list[Diagnostic] = field(default_factory=list[Diagnostic])
    """Every message so far."""

    def run(self) -> int:
        """Every chunk, its messages, its output. Raises Failure, DiagnosticsError and Crash."""
        from rpeg.tools.opt.output import refuse, write

        for file in (self.args.output, self.args.crash_reproducer):
            refuse(file, self.args.file)
        source = read(self.args.file) if self.args.file != "-" else standard_input()
        runner = self._runner()
        chunks = split(source.text) if self.args.split_input_file else whole(source.text)
        with self.timer.whole():
            texts = [text for chunk in chunks for text in self._chunk(chunk, source, runner)]
        found = self._compared(source)
        coded = [d.coded() for d in found] if self.args.error_codes else found
        show(coded, {source.name: source.text}, sys.stderr)
        self._report(runner)
        if has_errors(found):
            return FAILED
        return write(SEPARATORS[self.args.target].join(texts), self.args.output)

    def _runner(self) -> PassRunner | None:
        if not self.args.passes:
            return None
        from rpeg.tools.opt.passes import parse_passes
        from rpeg.tools.opt.running import PassRunner, Watch

        watch = Watch(
            self.args.verify_each,
            self.args.print_ir_before_all,
            self.args.print_ir_after_all,
            self.args.print_ir_after_change,
            self.args.pass_remarks,
            self.args.crash_reproducer,
            self._mlir,
        )
        return PassRunner(parse_passes(self.args.passes), watch, self.timer)

    def _chunk(self, chunk: Chunk, source: Source, runner: PassRunner | None) -> list[str]:
        """The output of a chunk; none where it has an error."""
        with self.timer.span("parse and verify"):
            given = self._read(chunk, source)
        self.found += given.diagnostics
        if given.module is None:
            return []
        try:
            if runner is not None:
                self.found += runner.run(given.module, given.sources)
            self._verify_level(given)
            with self.timer.span("print"):
                return [self._text(given.module, given)]
        except DiagnosticsError as error:
            self.found += error.diagnostics
            return []

    def _read(self, chunk: Chunk, source: Source) -> Read:
        from rpeg.tools.opt.frontends import choose, read_mlir, read_rpeg

        if choose(source, self.args.frontend) == "rpeg":
            return read_rpeg(chunk.text, source, self.args.set)
        if self.args.set:
            raise Failure("--set belongs to .rpeg input: MLIR has no params", USAGE)
        if source.pipeline is not None:
            raise Failure(f"{source.name}:{source.pipeline}: only .rpeg is read in part", USAGE)
        return read_mlir(chunk.text, source)

    def _verify_level(self, given: Read) -> None:
        if self.args.verify_level and given.module is not None:
            from rpeg.tools.opt.passes import verify_level

            verify_level(given.module, self.args.verify_level, given.sources)

    def _text(self, module: ModuleOp, given: Read) -> str:
        if self.args.target == "mlir":
            return self._mlir(module)
        from rpeg.tools.opt.targets import TARGETS

        return TARGETS[self.args.target](module, given.sources)

    def _mlir(self, module: ModuleOp) -> str:
        from rpeg.tools.opt.targets import mlir

        return mlir(module, self.args.print_op_generic, self.args.print_debuginfo)

    def _compared(self, source: Source) -> Sequence[Diagnostic]:
        if not self.args.verify_diagnostics:
            return self.found
        from rpeg.tools.opt.expected import mismatches

        return mismatches(source.text, self.found, source.name)

    def _report(self, runner: PassRunner | None) -> None:
        if self.args.pass_statistics and runner is not None:
            sys.stderr.write(runner.statistics.report())
        if self.args.time_passes:
            sys.stderr.write(self.timer.report())


if __name__ == "__main__":
    sys.exit(main())
