"""`rpeg launch`: run a compiled package."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from rpeg.lowering.package import CannotWrite, refuse
from rpeg.rundir.failures import RuntimeFailure
from rpeg.rundir.folder import RunFolder
from rpeg.rundir.lock import LAUNCH, FolderLock
from rpeg.rundir.versions import refuse_versions
from rpeg.tools.commands.compile import writable
from rpeg.tools.compiling import load_programs
from rpeg.tools.console import OK, Failure, natural, read
from rpeg.tools.continuing import refuse_other_batches
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
        refuse_versions(os.environ)
        if _as_compiled(options.package):
            done = _admitted(folder, options)
            if done is not None:
                print(done)
                return OK
        with writable(run_dir), FolderLock(folder.path, LAUNCH).held():
            return launch(options.package, variables)
    except RuntimeFailure as error:
        raise Failure(str(error)) from None


def _as_compiled(package: Path) -> bool:
    """Whether its programs are what plan.json and program.mlir say: nobody has edited them."""
    try:
        refuse(package)
    except CannotWrite:
        return False
    return True


def _admitted(folder: RunFolder, options: argparse.Namespace) -> str | None:
    """What a finished run says of itself, None if there is something to train.

    Raises RuntimeFailure where the programs would, once they have started: for another run, and for
    a checkpoint with batches of another order.
    """
    seed = str(os.environ.get("RPEG_SEED", "0") if options.seed is None else options.seed)
    if not seed.isdecimal():
        return None  # as they will say
    plan = json.loads((options.package / "plan.json").read_text(encoding="utf-8"))
    record = folder.find(plan["pipeline"], plan["source"]["sha256"], int(seed))
    if record is None:
        return None
    if record.is_done(plan["steps"]):
        return folder.done(record)
    refuse_other_batches(folder.path, load_programs(read(str(options.package / "program.mlir"))))
    return None


def _run_dir(options: argparse.Namespace) -> Path:
    """The run folder that was asked for, or the package's own default. Raises Failure."""
    given = options.run_dir or os.environ.get("RPEG_RUN_DIR")
    if given is not None:
        return Path(given)
    plan = options.package / "plan.json"
    try:
        return Path("runs", json.loads(plan.read_text(encoding="utf-8"))["pipeline"])
    except (OSError, ValueError, TypeError, KeyError):
        text = f"{plan} does not say which pipeline this is: give --run-dir, or compile again"
        raise Failure(text) from None
