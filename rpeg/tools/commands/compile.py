"""`rpeg compile`: a readable Python package."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

from rpeg.lowering.package import (
    CannotWrite,
    counted,
    package,
    processes,
    programs,
    refuse,
    write,
)
from rpeg.lowering.python import Origin, source_hash
from rpeg.passes.rpeg_lower_to_programs import ORDERS
from rpeg.tools.ahead import ahead_arguments, ahead_of
from rpeg.tools.compiling import Choice, compile_text, load_programs
from rpeg.tools.console import OK, USAGE, Failure, Source, folder, positive, read
from rpeg.tools.output import refuse_folder

HELP = "write the program of a pipeline as a readable Python package"
PROGRAM = "program.mlir"
"""The file of a package that is compiled again once it is edited."""
CHOICES = ("set", "staleness", "correction", "order", "processes", "plan", "layout")
"""Options by which a text becomes one of many programs."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument(
        "file", metavar="FILE[:PIPELINE]", help=".rpeg text, or .mlir with rrt.program"
    )
    parser.add_argument(
        "-o", "--out", required=True, type=folder, metavar="DIR", help="folder to write"
    )
    parser.add_argument("--force", action="store_true", help="replace an edited package")
    layout_arguments(parser)


def layout_arguments(parser: argparse.ArgumentParser) -> None:
    """Options that choose what is compiled, and for how many processes."""
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="another value for a param"
    )
    ahead_arguments(parser)
    parser.add_argument(
        "--order",
        choices=ORDERS,
        default=ORDERS[0],
        help="what makes up a batch: the samples of its own prompts (index), or, on a pool that "
        "only samples, the first groups that end (completion; docs/staleness.md)",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--processes",
        type=positive,
        metavar="N",
        help="data-parallel processes (default: this machine's)",
    )
    where.add_argument("--plan", metavar="NAME", help="a plan of the file")
    where.add_argument(
        "--layout",
        metavar="NAME",
        help="one layout for all: tp2sp, pp2vpp2, dp2zero1, ..., or for all but some models: "
        "dp2+actor=tp2 (docs/plans.md)",
    )
    parser.add_argument(
        "--allow-python",
        action="store_true",
        help="permit python: sources, which run code of yours",
    )


def choice_of(options: argparse.Namespace) -> Choice:
    """What the options say of the layout."""
    return Choice(
        sets=options.set,
        plan=options.plan,
        processes=options.processes,
        layout=options.layout,
        allow_python=options.allow_python,
        ahead=ahead_of(options),
        order=options.order,
    )


def run(options: argparse.Namespace) -> int:
    """Compiles one pipeline."""
    source = read(options.file)
    in_ir = source.path.suffix == ".mlir"
    if in_ir:
        refuse_choices(options)
    out: Path = options.out
    written_again = source.path.name == PROGRAM  # an edited package, compiled in place
    refuse_folder(out, [] if written_again else [source.path])
    with writable(out):
        refuse(out, options.force)
    module = load_programs(source) if in_ir else compile_text(source, choice_of(options))
    write_package(module, source, out, options.force)
    print(f"{out}: {counted(processes(module))}; run it with {shlex.quote(str(out))}/launch.sh")
    return OK


def refuse_choices(options: argparse.Namespace) -> None:
    """Raises Failure for options that choose what a program is compiled from: one is given."""
    given = [f"--{name}" for name in CHOICES if getattr(options, name) not in (None, [], ORDERS[0])]
    if given:
        text = (
            f"{options.file} holds a program, whose layout and settings are fixed: leave out "
            f"{' and '.join(given)}, or compile the .rpeg text"
        )
        raise Failure(text, USAGE)


def write_package(module: ModuleOp, source: Source, out: Path, force: bool = False) -> None:
    """Writes the package of a module of one pipeline. Raises Failure."""
    origin = Origin(source.path.name, source_hash(programs(module)[0]))
    target = out.resolve()  # through links: they stay, and their targets are written
    root = os.path.relpath(source.folder, target)
    with writable(out):
        write(package(module, origin, root), target, force)


@contextmanager
def writable(out: Path) -> Iterator[None]:
    """Turns what stands in the way of a folder to write into a Failure."""
    try:
        yield
    except CannotWrite as error:
        raise Failure(str(error)) from None
    except OSError as error:
        raise Failure(f"{out} can't be written: {error.strerror}") from None
