"""The surface as xDSL's own tools see it: a front end and a target, both named `rpeg`."""

from dataclasses import dataclass
from typing import IO, ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import DiagnosticException
from xdsl.utils.frontend import Frontend
from xdsl.utils.target import Target

from rpeg.frontend import load
from rpeg.frontend.lift import lift
from rpeg.frontend.render import render
from rpeg.ir.text.diagnostics import render as rendered
from rpeg.ir.text.sources import Sources


@dataclass(frozen=True)
class RpegFrontend(Frontend):
    """Reads `.rpeg`."""

    name: ClassVar[str] = "rpeg"

    def parse(self, ctx: Context, input: IO[bytes], input_name: str) -> ModuleOp:
        text = input.read().decode("utf-8")
        loaded = load(text, input_name)
        if loaded.module is None:
            raise DiagnosticException(rendered(loaded.diagnostics, {input_name: text}))
        return loaded.module


@dataclass(frozen=True)
class RpegTarget(Target):
    """Writes `.rpeg`. Raises DiagnosticsError where an operation has no form there."""

    name: ClassVar[str] = "rpeg"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        output.write(render(lift(module, Sources("<module>"))))
