"""`rpeg launch`: run a compiled package."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from rpeg.rundir.failures import RuntimeFailure
from rpeg.rundir.folder import RunFolder
from rpeg.rundir.lock import LAUNCH, FolderLock
from rpeg.tools.commands.compile import writable
from rpeg.tools.console import Failure, natural
from rpeg.tools.launching import environment, launch, need_torch, refuse_taken, script

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
    """Launches the package, which keeps others out of the run's folder as `rpeg run` does."""
    script(options.package)
    need_torch()
    run_dir = _run_dir(options)
    variables = environment(run_dir, options.seed, None, options.allow_python)
    folder = RunFolder(run_dir.resolve())
    try:
        refuse_taken(folder)
        with writable(), FolderLock(folder.path, LAUNCH).held():
            return launch(options.package, variables)
    except RuntimeFailure as error:
        raise Failure(str(error)) from None


def _run_dir(options: argparse.Namespace) -> Path:
    """What is said of it, or the package's own default. Raises Failure."""
    given = options.run_dir or os.environ.get("RPEG_RUN_DIR")
    if given is not None:
        return Path(given)
    plan = options.package / "plan.json"
    try:
        return Path("runs", json.loads(plan.read_text(encoding="utf-8"))["pipeline"])
    except (OSError, ValueError, TypeError, KeyError):
        text = f"{plan} does not say which pipeline this is: give --run-dir, or compile again"
        raise Failure(text) from None
