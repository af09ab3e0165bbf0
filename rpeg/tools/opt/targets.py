"""From a module to text: MLIR in its two forms, or the surface."""

from __future__ import annotations

from io import StringIO

from xdsl.dialects.builtin import ModuleOp
from xdsl.printer import Printer

from rpeg.ir.sources import Sources


def mlir(module: ModuleOp, generic: bool = False, places: bool = False) -> str:
    """MLIR text; `generic` is the form that every MLIR tool reads, `places` adds `loc(...)`."""
    buffer = StringIO()
    printer = Printer(buffer, print_generic_format=generic, print_debuginfo=places)
    printer.print_op(module)
    return buffer.getvalue() + "\n"


def rpeg(module: ModuleOp, sources: Sources) -> str:
    """The surface. Raises DiagnosticsError where an operation has none."""
    from rpeg.frontend.lift import lift
    from rpeg.frontend.render import render

    return render(lift(module, sources))
