"""`rpeg diff`: what changed between two graphs."""

from __future__ import annotations

import argparse
import sys

from xdsl.dialects.builtin import ModuleOp

from rpeg.frontend import ast
from rpeg.tools.console import OK, USAGE, Failure, Source, read, report, standard_input
from rpeg.tools.diffing.compare import compare
from rpeg.tools.diffing.facts import facts
from rpeg.tools.diffing.items import Facts
from rpeg.tools.diffing.show import as_json, text
from rpeg.tools.opt.frontends import choose, read_mlir

HELP = "say what changed between two pipelines or plans, at any level"
DIFFERENT = 1


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    form = "FILE[:PIPELINE]"
    parser.add_argument("old", metavar=form, help=".rpeg or .mlir, or - for standard input")
    parser.add_argument("new", metavar=form, help="what to compare it with")
    parser.add_argument("--json", action="store_true", help="print the changes as JSON")
    parser.epilog = "Exit code: 0 no difference, 1 different, 2 a file has errors."


def run(options: argparse.Namespace) -> int:
    """Compares the files."""
    try:
        old, new = (_parsed(name) for name in (options.old, options.new))
    except Failure as failure:
        failure.code = USAGE  # 1 says that they differ
        raise
    both = old[1] is not None and new[1] is not None
    before, after = (_facts(side, both) for side in (old, new))
    changes, levels = compare(before, after), (before.level, after.level)
    sys.stdout.write(as_json(changes, levels) if options.json else text(changes, levels))
    return DIFFERENT if changes else OK


Side = tuple[ModuleOp, ast.File | None]
"""A module, and the tree of its text where it was read from one."""


def _facts(side: Side, params: bool) -> Facts:
    """Params are compared only where both files can have some."""
    module, tree = side
    return facts(module, tree if params else None)


def _parsed(name: str) -> Side:
    source = standard_input() if name == "-" else read(name)
    if choose(source, None, how=": give files that are") == "mlir":
        return _mlir(source), None
    from rpeg.frontend import load

    loaded = load(source.text, source.name, pipeline=source.pipeline)
    report((d for d in loaded.diagnostics if d.severity == "error"), source)
    assert loaded.module is not None
    return loaded.module, loaded.file


def _mlir(source: Source) -> ModuleOp:
    if source.pipeline is not None:
        raise Failure(f"{source.name}:{source.pipeline}: only .rpeg is read in part")
    given = read_mlir(source.text, source)
    report((d for d in given.diagnostics if d.severity == "error"), source)
    assert given.module is not None
    return given.module
