"""`rpeg calibrate`: how fast this machine is, as a cluster file."""

from __future__ import annotations

import argparse
import json
import sys
from datetime import date
from pathlib import Path

from rpeg.ir.clusters import cores_here
from rpeg.tools import output
from rpeg.tools.calibrating.describe import cluster_file
from rpeg.tools.calibrating.idle import BUSY, others_share
from rpeg.tools.calibrating.measure import CalibrationError, measure
from rpeg.tools.console import OK, Failure, positive
from rpeg.tools.launching import need_torch, visible_gpus

HELP = "measure this machine, and write it as a cluster file"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument(
        "-o", "--out", type=Path, required=True, metavar="FILE.toml", help="the file to write"
    )
    parser.add_argument(
        "--processes",
        type=positive,
        metavar="N",
        help="measure with so many at once (default: one per GPU, or else one per core)",
    )
    parser.add_argument(
        "--rounds", type=positive, default=5, metavar="N", help="medians are over N (default: 5)"
    )
    parser.add_argument("--json", action="store_true", help="print every measurement as JSON")
    parser.epilog = "Every command that takes a cluster takes FILE.toml."


def run(options: argparse.Namespace) -> int:
    """Measures, writes, prints."""
    need_torch()
    out: Path = options.out
    if out.suffix != ".toml":
        raise Failure(f"{out}: write it as {out.stem}.toml: clusters are known by that ending")
    output.refuse(out, [])
    gpus = visible_gpus()
    most, each = (gpus, "GPU") if gpus else (cores_here(), "core")
    processes = options.processes or most
    if processes > most:
        have = f"1 {each}" if most == 1 else f"{most} {each}s"
        raise Failure(
            f"--processes {processes}: each needs a {each} of its own, and this machine has {have}"
        )
    _tell_others()
    try:
        found = measure(processes, options.rounds)
    except CalibrationError as error:
        raise Failure(str(error)) from None
    output.write(out, cluster_file(out.stem, found, str(date.today())))
    print(json.dumps(found.to_json(), indent=2) if options.json else out)
    return OK


def _tell_others() -> None:
    share = others_share()
    if share is not None and share > BUSY:
        told = f"other programs use {100 * share:.0f} % of this machine's cores"
        print(f"note: {told}: what is measured now is too slow", file=sys.stderr)
