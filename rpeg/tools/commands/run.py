"""`rpeg run`: check, plan for this machine, compile, launch.

What can be refused is refused first: before torch is imported, and before a byte is written.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path

from rpeg.ir.clusters import cores_here
from rpeg.lowering.package import CannotWrite, Edited, counted, processes, refuse
from rpeg.passes.base import step
from rpeg.rundir.failures import RuntimeFailure
from rpeg.rundir.folder import PROGRAM, RunFolder
from rpeg.rundir.lock import LAUNCH, FolderLock
from rpeg.rundir.versions import refuse_versions
from rpeg.tools.commands.compile import choice_of, layout_arguments, writable, write_package
from rpeg.tools.compiling import Checked, check_text, placed
from rpeg.tools.console import OK, USAGE, Failure, natural, read
from rpeg.tools.continuing import refuse_other_batches
from rpeg.tools.launching import environment, launch, need_torch, refuse_taken, visible_gpus

HELP = "train: compile for this machine, launch, show progress; resumes after a stop"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument(
        "file", metavar="FILE[:PIPELINE]", help=".rpeg text, and which of its pipelines"
    )
    parser.add_argument(
        "--seed", type=natural, default=0, metavar="N", help="the run's seed (default: 0)"
    )
    parser.add_argument(
        "--run-dir", type=Path, metavar="DIR", help="where its files go (default: runs/PIPELINE)"
    )
    layout_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Compiles into the run's folder and launches."""
    source = read(options.file)
    if source.path.suffix == ".mlir":
        text = "rpeg run takes .rpeg text; for .mlir: rpeg compile, then rpeg launch"
        raise Failure(text, USAGE)
    need_torch()
    given: Path | None = options.run_dir
    runs = Path("runs")
    beside = [folder.resolve() for folder in (given.parent if given else runs, runs)]
    choice = replace(choice_of(options), needs_files=True, runs=beside)
    checked = check_text(source, choice)
    run_dir = given or runs / checked.pipeline.title
    package = run_dir / PROGRAM
    try:
        refuse_versions(os.environ)
        done = _admitted(run_dir, checked, options.seed)
        if done is not None:
            print(done)
            return OK
        _refuse_edited(package)
        module = placed(checked, source, choice, visible_gpus)
        refuse_other_batches(run_dir.resolve(), module)
        with writable(run_dir), FolderLock(run_dir.resolve(), LAUNCH).held():
            write_package(module, source, package)
            _announce(package, processes(module))
            variables = environment(run_dir, options.seed, source.folder, options.allow_python)
            return launch(package, variables)
    except RuntimeFailure as error:
        raise Failure(str(error)) from None


def _admitted(run_dir: Path, checked: Checked, seed: int) -> str | None:
    """What a finished run says of itself, None if there is something to train. Raises
    RunFolderFailure if the folder is in use or holds another run, or other files.
    """
    folder = RunFolder(run_dir.resolve())
    refuse_taken(folder)
    record = folder.find(checked.pipeline.title, checked.source_sha256, seed)
    if record is None or not record.is_done(step(checked.pipeline).steps):
        return None
    return folder.done(record)


def _refuse_edited(package: Path) -> None:
    try:
        refuse(package)
    except Edited:
        launch_it = f"rpeg launch {shlex.quote(str(package))}"
        text = f"{package} was edited: run it with `{launch_it}`, or delete it first"
        raise Failure(text) from None
    except CannotWrite as error:
        raise Failure(str(error)) from None


def _announce(package: Path, number: int) -> None:
    """Says what happens next, which takes a while."""
    cores = cores_here()
    if number > cores:
        text = f"{counted(number)} share this machine's {cores} cores: each waits for the others"
        print(f"note: {text}", file=sys.stderr, flush=True)
    print(f"compiled {package}", f"starting {counted(number)}", sep="\n", flush=True)
