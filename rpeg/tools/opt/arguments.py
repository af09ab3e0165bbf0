"""The command line of `rpeg-opt`: what its users know from other opt tools, in groups."""

from __future__ import annotations

import argparse
import textwrap

from rpeg import __version__
from rpeg.passes import PASSES
from rpeg.tools.completion import add_completion

DESCRIPTION = "Reads a pipeline (.rpeg or .mlir), verifies it, runs passes on it, writes it."
_OURS = textwrap.fill(
    ", ".join(PASSES), 78, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
)
EPILOG = f"""\
Passes take options in braces and are separated by commas:
  rpeg-opt pipeline.rpeg -p 'rpeg-annotate-parallelism{{dp=2}},rpeg-schedule'
Ours, in the order of rpeg compile:
{_OURS}
xDSL's too, such as canonicalize, cse, dce: rpeg-opt --list-passes names all.

Exit code: 0 done; 1 the input has errors or can't be read, a pass refused or
crashed; 2 the command is wrong. NO_COLOR=1 turns colours off on a terminal."""

SEPARATORS = {
    "mlir": "// -----\n",
    "rpeg": "# -----\n",
    "rpeg-dot": "// -----\n",
    "rpeg-mermaid": "%% -----\n",
    "rpeg-json": "",
    "rpeg-summary": "\n",
}
"""The targets, with the line between the outputs of two inputs in one file."""


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    made = argparse.ArgumentParser(
        "rpeg-opt",
        usage="rpeg-opt [FILE[:PIPELINE]] [-p PASSES] [-t TARGET] [-o FILE] [option ...]",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    _input(made)
    _passes(made)
    _output(made)
    _watching(made)
    _rules(made)
    _testing(made)
    add_completion(made)
    made.add_argument("--version", action="version", version=f"rpeg-opt {__version__}")
    return made


def _input(made: argparse.ArgumentParser) -> None:
    add = made.add_argument_group("input").add_argument
    text = "the input, or one pipeline of it; - is standard input (-)"
    add("file", nargs="?", default="-", metavar="FILE[:PIPELINE]", help=text)
    add("-f", "--frontend", choices=("rpeg", "mlir"), help="what the input is (by its extension)")
    add("--set", metavar="NAME=VALUE", action="append", default=[], help="another value of a param")
    add("--split-input-file", action="store_true", help="inputs are separated by `// -----`")


def _passes(made: argparse.ArgumentParser) -> None:
    add = made.add_argument_group("passes").add_argument
    add("-p", "--passes", metavar="PASSES", default="", help="passes to run, in order")
    add(
        "--verify-each",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="verify after each pass, not only after the last (on)",
    )
    text = "refuse an output with anything that is not legal at this level"
    add("--verify-level", metavar="LEVEL", choices=("L0", "L1", "L2", "L3"), help=text)
    add("--list-passes", action="store_true", help="list the passes with kinds and options")


def _output(made: argparse.ArgumentParser) -> None:
    add = made.add_argument_group("output").add_argument
    add("-t", "--target", choices=SEPARATORS, default="mlir", help="what to write (mlir)")
    add("-o", "--output", metavar="FILE", help="where to write (standard output)")
    add("--print-op-generic", action="store_true", help="write MLIR's generic form")
    add("--print-debuginfo", action="store_true", help="write the place of each operation")


def _watching(made: argparse.ArgumentParser) -> None:
    add = made.add_argument_group("watching passes, on standard error").add_argument
    add("--print-ir-before-all", action="store_true", help="show the IR before each pass")
    add("--print-ir-after-all", action="store_true", help="show the IR after each pass")
    add("--print-ir-after-change", action="store_true", help="only where a pass changed it")
    add("--time-passes", action="store_true", help="show the time of each part, as a tree")
    add("--pass-statistics", action="store_true", help="show what each pass did, in numbers")
    add("--pass-remarks", action="store_true", help="say where a pass does not apply, and why")
    text = "where the IR before a pass that crashes goes (a temporary file)"
    add("--crash-reproducer", metavar="FILE", help=text)


def _testing(made: argparse.ArgumentParser) -> None:
    add = made.add_argument_group("testing").add_argument
    text = "hold messages to comments: expected-error@+1:13 {{text}}"
    add("--verify-diagnostics", action="store_true", help=text)


def _rules(made: argparse.ArgumentParser) -> None:
    add = made.add_argument_group("rules of the verifier").add_argument
    add("--error-codes", action="store_true", help="show the code of the rule behind each message")
    add("--explain", metavar="CODE", help="say what a rule is for, and how to keep it")
    add("--list-rules", action="store_true", help="list the rules, level by level")
