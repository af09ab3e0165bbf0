"""`rpeg trace`: predicted and measured traces against each other."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from rpeg.tools.console import OK, USAGE, Failure, natural
from rpeg.tools.tracing.compare import compare
from rpeg.tools.tracing.read import Trace, TraceError, read_trace
from rpeg.tools.tracing.show import text

HELP = "compare a predicted trace with a measured one"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    told = "seconds of each stage in both, those that differ most first"
    diff = actions.add_parser("diff", help=told, description=told)
    form = "a trace in Perfetto's format, or a run's folder"
    diff.add_argument("predicted", type=Path, metavar="PREDICTED", help=form)
    diff.add_argument("measured", type=Path, metavar="MEASURED", help=form)
    diff.add_argument(
        "--skip",
        type=natural,
        metavar="N",
        help="leave the first N steps of each out, in which things warm up (default: 1, if a "
        "trace has more)",
    )
    diff.add_argument("--json", action="store_true", help="print the comparison as JSON")


def run(options: argparse.Namespace) -> int:
    """Compares the traces."""
    try:
        predicted, measured = (
            _read(path, options.skip) for path in (options.predicted, options.measured)
        )
    except TraceError as error:
        raise Failure(str(error)) from None
    found = compare(predicted, measured, options.skip)
    sys.stdout.write(json.dumps(found.to_json(), indent=2) + "\n" if options.json else text(found))
    return OK


def _read(path: Path, skip: int | None) -> Trace:
    """A trace with steps beyond those that are skipped. Raises TraceError, Failure."""
    trace = read_trace(path)
    number = len(trace.steps)
    if skip is not None and number <= skip:
        raise Failure(f"--skip {skip}: {path} has no more: it has {number} in all", USAGE)
    return trace
