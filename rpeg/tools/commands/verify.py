"""`rpeg verify`: every layout computes what the pipeline says."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

from rpeg.tools.ahead import ahead_arguments, ahead_of
from rpeg.tools.console import FAILED, OK, USAGE, Failure, natural, positive, read
from rpeg.tools.launching import need_torch

HELP = "prove that parallel layouts compute what the pipeline says, by record and replay"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE[:PIPELINE]",
        help=".rpeg text; several, and a layout is refused by name where it can't be made",
    )
    parser.add_argument(
        "--layouts",
        metavar="NAME,...",
        help="such as tp2sp,pp2vpp2,dp2zero1,dp2+actor=tp2 (default: the usual ones that fit); "
        "one process is always tried",
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="another value for a param"
    )
    ahead_arguments(parser)
    parser.add_argument(
        "--model", type=Path, metavar="DIR", help="a small model to take for every one of the files"
    )
    parser.add_argument(
        "--steps", type=positive, default=5, metavar="N", help="steps to compare (default: 5)"
    )
    parser.add_argument(
        "--seed", type=natural, default=0, metavar="N", help="of the recording (default: 0)"
    )
    parser.add_argument(
        "--level",
        choices=("L1", "L3"),
        default="L3",
        help="what is executed of a layout: L3, its program in as many processes (default), or L1, "
        "its plan in one",
    )
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="DIR",
        help="a new folder for recording, programs and logs",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument(
        "--allow-python",
        action="store_true",
        help="permit python: sources, which run code of yours",
    )


def run(options: argparse.Namespace) -> int:
    """Verifies pipelines."""
    sources = [read(file) for file in options.files]
    if any(source.path.suffix == ".mlir" for source in sources):
        raise Failure("rpeg verify takes .rpeg text, which says what to compute", USAGE)
    need_torch()
    from rpeg.tools.verifying.run import Request, verify_all
    from rpeg.tools.verifying.show import as_json, print_table

    common = Request(
        sources[0],
        sets=options.set,
        layouts=options.layouts.split(",") if options.layouts is not None else None,
        steps=options.steps,
        seed=options.seed,
        model=options.model,
        allow_python=options.allow_python,
        level=options.level,
        ahead=ahead_of(options),
    )
    requests = [replace(common, source=source) for source in sources]
    reports = verify_all(requests, _say, keep=options.keep)
    if options.json:
        print(json.dumps(as_json(reports), indent=2))
    else:
        print_table(reports)
    return OK if all(report.ok for report in reports) else FAILED


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
