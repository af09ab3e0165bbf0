"""`rpeg run`: check, plan for this machine, compile, launch."""

from __future__ import annotations

import argparse
from pathlib import Path

from rpeg.tools.commands.compile import choice_of, compile_to, layout_arguments
from rpeg.tools.compiling import one_pipeline
from rpeg.tools.console import USAGE, Failure, read
from rpeg.tools.launching import environment, launch, visible_gpus

HELP = "train: compile for this machine, launch, show progress; resumes after a stop"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("file", metavar="FILE[:PIPELINE]")
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="the run's seed (default: 0)"
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
    pipeline = one_pipeline(source, options.set)[1].title
    run_dir: Path = options.run_dir or Path("runs") / pipeline
    program = run_dir / "program"
    compile_to(source, choice_of(options, needs_files=True), program, False, visible_gpus())
    return launch(program, environment(run_dir, options.seed, source.folder, options.allow_python))
