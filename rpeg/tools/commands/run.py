"""`rpeg run`: check, plan for this machine, compile, launch."""

from __future__ import annotations

import argparse
from pathlib import Path

from rpeg.lowering.package import Edited, programs
from rpeg.lowering.python import pipeline_name
from rpeg.tools.commands.compile import choice_of, layout_arguments, write_package
from rpeg.tools.compiling import compile_text
from rpeg.tools.console import OK, USAGE, Failure, natural, read
from rpeg.tools.launching import environment, finished, launch, need_torch, visible_gpus

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
    module = compile_text(source, choice_of(options, needs_files=True), visible_gpus)
    program = programs(module)[0]
    run_dir: Path = options.run_dir or Path("runs") / pipeline_name(program)
    folder = run_dir / "program"
    try:
        write_package(module, source, folder, force=False)
    except Edited:
        text = f"{folder} was edited: run it with `rpeg launch {folder}`, or delete it first"
        raise Failure(text) from None
    done = finished(run_dir, program, options.seed)
    if done is not None:
        print(done)
        return OK
    return launch(folder, environment(run_dir, options.seed, source.folder, options.allow_python))
