"""From `.rpeg` text to IR."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import ModuleOp, StringAttr

from rpeg.frontend import ast
from rpeg.frontend.irgen import generate
from rpeg.frontend.overrides import apply_overrides
from rpeg.frontend.parse import parse
from rpeg.frontend.render import render
from rpeg.frontend.resolve import identity
from rpeg.ir.rules.verify import diagnose
from rpeg.ir.rules.violations import hint
from rpeg.ir.text.diagnostics import Diagnostic, DiagnosticsError, Position, has_errors, in_order
from rpeg.ir.text.sources import Sources
from rpeg.ir.types.attributes import SOURCE_HASH

__all__ = ["Loaded", "check", "digest", "load"]


@dataclass(frozen=True)
class Loaded:
    """A text that was loaded: its tree and module where it has no error, and every message."""

    file: ast.File | None
    module: ModuleOp | None
    diagnostics: tuple[Diagnostic, ...]
    sources: Sources


def load(
    text: str,
    filename: str,
    overrides: Mapping[str, ast.Literal] | None = None,
    pipeline: str | None = None,
) -> Loaded:
    """Parses, resolves and verifies a text, or only one pipeline of it; its problems together,
    those of its form before those of its meaning.

    `overrides` are other literals for params.
    """
    sources = Sources(filename)
    file, problems = parse(text, filename)
    if file is None or has_errors(problems):
        return Loaded(file, None, in_order(problems), sources)
    try:
        file = _selected(file, filename, pipeline, overrides or {})
    except DiagnosticsError as error:
        return Loaded(file, None, in_order(error.diagnostics), sources)
    module, found = generate(file, sources)
    module.attributes[SOURCE_HASH] = StringAttr(digest(file))
    everything = in_order([*problems, *found, *diagnose(module, sources, names=False)])
    if has_errors(everything):
        errors = tuple(d for d in everything if d.severity == "error")
        return Loaded(file, None, tuple(dict.fromkeys(errors)), sources)
    return Loaded(file, module, tuple(dict.fromkeys(everything)), sources)


def check(
    text: str, filename: str, overrides: Mapping[str, ast.Literal] | None = None
) -> list[Diagnostic]:
    """Every problem of a text."""
    return list(load(text, filename, overrides).diagnostics)


def _selected(
    file: ast.File, filename: str, pipeline: str | None, overrides: Mapping[str, ast.Literal]
) -> ast.File:
    """The file with one pipeline, or all of them, and with other literals in their params."""
    names = [p.name for p in file.pipelines]
    if pipeline is not None and pipeline not in names:
        near = hint(pipeline, names) or f"; the file has: {', '.join(names)}"
        text = f"there is no pipeline `{pipeline}`{near}"
        raise DiagnosticsError([Diagnostic(Position(1, 1), text, "error", filename)])
    chosen = [p for p in file.pipelines if pipeline in (None, p.name)]
    if overrides:
        chosen = [apply_overrides(p, overrides, filename) for p in chosen]
    return replace(file, pipelines=tuple(chosen))


def digest(file: ast.File) -> str:
    """SHA-256 of the canonical form of what is computed: no comments, params, step count, plans."""
    return hashlib.sha256(render(identity(file)).encode()).hexdigest()
