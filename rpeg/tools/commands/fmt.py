"""`rpeg fmt`: rewrites a text in its canonical form."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from rpeg.frontend.format import format_source
from rpeg.ir.text.diagnostics import DiagnosticsError
from rpeg.tools import output
from rpeg.tools.console import FAILED, OK, Failure, read, report, standard_input, tell

HELP = "rewrite files in their canonical form, in place"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help=".rpeg file, rewritten in place; or - for standard input to standard output",
    )
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit 1 if a file would change"
    )


def run(options: argparse.Namespace) -> int:
    """Formats each file; one that can't be read or parsed does not stop the others."""
    code = OK
    for name in options.files:
        try:
            changed = _one(name, options.check)
        except Failure as failure:
            tell(failure)
            code = failure.code
            continue
        if changed and options.check:
            print(f"{name}: not in canonical form; rpeg fmt {shlex.quote(name)} writes it")
            code = FAILED
    return code


def _one(name: str, check: bool) -> bool:
    """Whether a text is not in canonical form; then it is rewritten, unless it is only checked."""
    source = standard_input() if name == "-" else read(name)
    try:
        formatted = format_source(source.text, source.name)
    except DiagnosticsError as error:
        report(error.diagnostics, source)
        raise
    changed = formatted != source.text
    if name == "-" and not check:
        sys.stdout.write(formatted)
    elif changed and not check:
        _rewrite(source.path, formatted)
    return changed


def _rewrite(path: Path, text: str) -> None:
    output.write(path, text)
    print(f"{path}: formatted")
