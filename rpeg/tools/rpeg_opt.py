"""`rpeg-opt`: reads a pipeline, runs passes on it, writes it."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rpeg import __version__
from rpeg.ir.diagnostics import Diagnostic, DiagnosticsError, has_errors, show
from rpeg.tools.console import FAILED, USAGE, Failure, Source, read
from rpeg.tools.opt.chunks import Chunk, split, whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xdsl.dialects.builtin import ModuleOp
    from xdsl.passes import ModulePass

    from rpeg.tools.opt.frontends import Read

DESCRIPTION = "Reads a pipeline (.rpeg or .mlir), verifies it, runs passes on it, writes it."
EPILOG = """\
A pass takes options in braces, and passes are separated by commas:
  rpeg-opt pipeline.rpeg -p 'rpeg-annotate-parallelism,rpeg-schedule' -t mlir
Exit code: 0 done, 1 the input has errors (or can't be read), 2 the command is wrong."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; gives its exit code."""
    try:
        args = _arguments().parse_args(argv)
    except SystemExit as end:  # argparse has printed the help or what is wrong
        return int(end.code or 0)
    try:
        return Driver(args).run()
    except Failure as failure:
        print(f"rpeg-opt: error: {failure}", file=sys.stderr)
        return failure.code
    except DiagnosticsError as error:
        show(error.diagnostics, {}, sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        return 130


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "rpeg-opt",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("file", nargs="?", default="-", help="the input; FILE:NAME takes one pipeline; - is stdin")
    add("-f", "--frontend", choices=("rpeg", "mlir"), help="what the input is (by its extension)")
    add("-t", "--target", choices=("mlir", "rpeg"), default="mlir", help="what to write (mlir)")
    add("-p", "--passes", metavar="PIPELINE", default="", help="passes to run, in order")
    add("-o", "--output", metavar="FILE", help="where to write (stdout)")
    add("--set", metavar="NAME=VALUE", action="append", default=[], help="another value of a param")
    add("--print-op-generic", action="store_true", help="write MLIR's generic form")
    add("--print-debuginfo", action="store_true", help="write the place of each operation")
    add("--split-input-file", action="store_true", help="inputs are separated by `// -----`")
    add("--verify-diagnostics", action="store_true", help="check `expected-error {{...}}` comments")
    add("--print-ir-after-all", action="store_true", help="show the IR after each pass (stderr)")
    add("--time-passes", action="store_true", help="show the time of each part (stderr)")
    add("--list-passes", action="store_true", help="list the passes with their options")
    add("--version", action="version", version=f"rpeg-opt {__version__}")
    return parser


@dataclass
class Driver:
    """One run of the command."""

    args: argparse.Namespace
    times: dict[str, float] = field(default_factory=dict[str, float])

    def run(self) -> int:
        """Every chunk, its messages, its output. Raises Failure and DiagnosticsError."""
        from rpeg.tools.opt.output import write

        if self.args.list_passes:
            from rpeg.tools.opt.passes import listing

            return write(listing(), None)
        source = _source(self.args.file)
        passes = self._passes()
        found: list[Diagnostic] = []
        texts: list[str] = []
        chunks = split(source.text) if self.args.split_input_file else whole(source.text)
        for chunk in chunks:
            texts += self._chunk(chunk, source, passes, found)
        found = self._compared(source, found)
        show(found, {source.name: source.text}, sys.stderr)
        self._show_times()
        if has_errors(found):
            return FAILED
        separator = "# -----\n" if self.args.target == "rpeg" else "// -----\n"
        return write(separator.join(texts), self.args.output)

    def _passes(self) -> list[ModulePass]:
        if not self.args.passes:
            return []
        from rpeg.tools.opt.passes import parse_passes

        return parse_passes(self.args.passes)

    def _chunk(
        self, chunk: Chunk, source: Source, passes: Sequence[ModulePass], found: list[Diagnostic]
    ) -> list[str]:
        """The output of a chunk; none where it has an error."""
        with self._timed("parse and verify"):
            given = self._read(chunk, source)
        found += given.diagnostics
        if given.module is None:
            return []
        try:
            self._transform(given.module, passes, given)
            with self._timed("print"):
                return [self._text(given.module, given)]
        except DiagnosticsError as error:
            found += error.diagnostics
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

    def _transform(self, module: ModuleOp, passes: Sequence[ModulePass], given: Read) -> None:
        if not passes:
            return
        from rpeg.ir.registry import context
        from rpeg.tools.opt.passes import run_pass

        ctx = context()
        for step in passes:
            with self._timed(str(step)):
                run_pass(step, ctx, module, given.sources)
            if self.args.print_ir_after_all:
                print(f"// IR after {step}", self._mlir(module), sep="\n", file=sys.stderr)

    def _text(self, module: ModuleOp, given: Read) -> str:
        if self.args.target == "mlir":
            return self._mlir(module)
        from rpeg.tools.opt.targets import rpeg

        return rpeg(module, given.sources)

    def _mlir(self, module: ModuleOp) -> str:
        from rpeg.tools.opt.targets import mlir

        return mlir(module, self.args.print_op_generic, self.args.print_debuginfo)

    def _compared(self, source: Source, found: list[Diagnostic]) -> list[Diagnostic]:
        if not self.args.verify_diagnostics:
            return found
        from rpeg.tools.opt.expected import mismatches

        return mismatches(source.text, found, source.name)

    @contextmanager
    def _timed(self, label: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.times[label] = self.times.get(label, 0.0) + time.perf_counter() - start

    def _show_times(self) -> None:
        if self.args.time_passes:
            for label, seconds in self.times.items():
                print(f"{seconds * 1e3:10.1f} ms  {label}", file=sys.stderr)


def _source(argument: str) -> Source:
    """The input. Raises Failure."""
    if argument != "-":
        return read(argument)
    try:
        return Source(Path("<stdin>"), sys.stdin.buffer.read().decode("utf-8"))
    except UnicodeDecodeError as error:
        raise Failure(f"<stdin> is not UTF-8 text (byte {error.start})") from None


if __name__ == "__main__":
    sys.exit(main())
