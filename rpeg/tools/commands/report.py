"""`rpeg report`: a picture of a run."""

from __future__ import annotations

import argparse
from pathlib import Path

from rpeg.tools.console import OK, Failure
from rpeg.tools.launching import need_torch

HELP = "draw a run: reward or losses by step, and held-out measures (PNG)"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("run", type=Path, metavar="RUN", help="a run's folder, such as runs/grpo")
    parser.add_argument("-o", "--out", type=Path, metavar="FILE", help="default: RUN/report.png")


def run(options: argparse.Namespace) -> int:
    """Draws the run."""
    need_torch()
    from rpeg.runtime.errors import RuntimeFailure
    from rpeg.runtime.logs.report import plot_run

    try:
        print(plot_run(options.run, options.out or options.run / "report.png"))
    except RuntimeFailure as error:
        raise Failure(str(error)) from None
    return OK
