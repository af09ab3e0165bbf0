"""Programs of texts and examples, without a folder: what the tests of generated text start from."""

from __future__ import annotations

import ast
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

from rpeg.ir.rrt.program import ProgramOp
from rpeg.lowering.package import programs
from rpeg.lowering.python import Origin, program_text, source_hash
from rpeg.tools.compiling import Choice, compile_text
from rpeg.tools.console import Source, read

ROOT = Path(__file__).parents[3]


def compiled(source: Source | str, processes: int = 1) -> ModuleOp:
    """The L3 module of a text, or of `FILE:PIPELINE`."""
    given = read(str(ROOT / source)) if isinstance(source, str) else source
    return compile_text(given, Choice(processes=processes))


def program_of(module: ModuleOp) -> ProgramOp:
    (program,) = programs(module)
    return program


def text_of(module: ModuleOp, name: str = "p.rpeg") -> str:
    program = program_of(module)
    return program_text(program, Origin(name, source_hash(program)))


def strings(text: str) -> list[str]:
    """Every string literal of a Python text, without docstrings."""
    tree = ast.parse(text)
    found = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)]
    return [v for v in found if isinstance(v, str) and v != ast.get_docstring(tree, clean=False)]
