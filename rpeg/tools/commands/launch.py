"""`rpeg launch`: run a compiled package."""

from __future__ import annotations

import argparse
from pathlib import Path

from rpeg.tools.console import natural
from rpeg.tools.launching import environment, launch

HELP = "run a compiled package on this machine"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("package", type=Path, metavar="DIR", help="what rpeg compile wrote")
    parser.add_argument("--seed", type=natural, metavar="N", help="the run's seed (default: 0)")
    parser.add_argument(
        "--run-dir", type=Path, metavar="DIR", help="where its files go (default: runs/PIPELINE)"
    )
    parser.add_argument(
        "--allow-python",
        action="store_true",
        help="permit python: sources, which run code of yours",
    )


def run(options: argparse.Namespace) -> int:
    """Launches the package."""
    return launch(
        options.package,
        environment(options.run_dir, options.seed, None, options.allow_python),
    )
