"""From `.rpeg` text to IR."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from rpeg.frontend import ast
from rpeg.frontend.irgen import Overrides, generate
from rpeg.frontend.parse import parse
from rpeg.ir.diagnostics import Diagnostic, has_errors, in_order
from rpeg.ir.sources import Sources
from rpeg.ir.verify import diagnose

__all__ = ["Loaded", "check", "load"]


@dataclass(frozen=True)
class Loaded:
    """What a text came to: its tree and module where it has no error, and every message."""

    file: ast.File | None
    module: ModuleOp | None
    diagnostics: tuple[Diagnostic, ...]


def load(text: str, filename: str, overrides: Overrides | None = None) -> Loaded:
    """Parses, resolves and verifies a text; all problems at once, none that another causes."""
    file, problems = parse(text, filename)
    if file is None or has_errors(problems):
        return Loaded(file, None, in_order(problems))
    sources = Sources(filename)
    module, found = generate(file, sources, overrides)
    everything = in_order([*problems, *found, *diagnose(module, sources)])
    if has_errors(everything):
        errors = tuple(d for d in everything if d.severity == "error")
        return Loaded(file, None, tuple(dict.fromkeys(errors)))
    return Loaded(file, module, tuple(dict.fromkeys(everything)))


def check(text: str, filename: str, overrides: Overrides | None = None) -> list[Diagnostic]:
    """Every problem of a text."""
    return list(load(text, filename, overrides).diagnostics)
