"""From text to a verified module: the surface, or MLIR."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from rpeg.ir.text.diagnostics import Diagnostic, has_errors
from rpeg.ir.text.sources import Sources
from rpeg.tools.console import USAGE, Failure, Source

EXTENSIONS = {".rpeg": "rpeg", ".mlir": "mlir"}


@dataclass(frozen=True)
class Read:
    """What a text came to: a module where it has no error, and every message."""

    module: ModuleOp | None
    sources: Sources
    diagnostics: Sequence[Diagnostic]


def choose(source: Source, asked: str | None, how: str = ": add -f rpeg or -f mlir") -> str:
    """The front end of a file: the one asked for, or by the extension; standard input is MLIR.
    `how` says what else to give. Raises Failure.
    """
    if asked is not None:
        return asked
    if source.name == "<stdin>":
        return "mlir"
    found = EXTENSIONS.get(source.path.suffix)
    if found is None:
        raise Failure(f"{source.name} is neither .rpeg nor .mlir{how}", USAGE)
    return found


def read_mlir(text: str, source: Source) -> Read:
    """MLIR text, parsed and verified."""
    from rpeg.ir.rules.verify import diagnose
    from rpeg.ir.text.parse import parse_module

    module, sources, problems = parse_module(text, source.name)
    found = [*problems, *(diagnose(module, sources) if module is not None else ())]
    return Read(None if has_errors(found) else module, sources, found)


def read_rpeg(text: str, source: Source, settings: Sequence[str]) -> Read:
    """The surface, with other literals in its params. Raises DiagnosticsError for bad settings."""
    from rpeg.frontend import load
    from rpeg.frontend.overrides import parse_overrides

    loaded = load(text, source.name, parse_overrides(settings), source.pipeline)
    return Read(loaded.module, loaded.sources, loaded.diagnostics)
