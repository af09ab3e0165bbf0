"""`rpeg fmt`: the canonical form of a text."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rpeg.frontend.format import format_source
from rpeg.ir.diagnostics import DiagnosticsError
from rpeg.tools.console import FAILED, OK, Source, read, report

HELP = "print pipelines in canonical form, or rewrite their files"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help=".rpeg file, or - for standard input"
    )
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit 1 if a file would change"
    )


def run(options: argparse.Namespace) -> int:
    """Formats each file."""
    changed = [name for name in options.files if _one(name, options.check)]
    if options.check:
        for name in changed:
            print(f"{name}: not in canonical form; rpeg fmt {name} writes it")
        return FAILED if changed else OK
    return OK


def _one(name: str, check: bool) -> bool:
    source = Source(Path("<stdin>"), sys.stdin.read()) if name == "-" else read(name)
    try:
        formatted = format_source(source.text, source.name)
    except DiagnosticsError as error:
        report(error.diagnostics, source)
        raise
    if name == "-":
        sys.stdout.write(formatted)
    elif formatted != source.text and not check:
        source.path.write_text(formatted, encoding="utf-8")
        print(f"{name}: formatted")
    return formatted != source.text
