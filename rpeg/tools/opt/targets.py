"""From a module to text: MLIR in its two forms, the surface, views of the graph."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO

from xdsl.dialects.builtin import ModuleOp
from xdsl.printer import Printer

from rpeg.ir.text.sources import Sources


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


def dot(module: ModuleOp, sources: Sources) -> str:
    """Graphviz. Raises DiagnosticsError where there is no step."""
    from rpeg.tools.views.dot import dot
    from rpeg.tools.views.graph import graphs

    return dot(graphs(module, sources))


def mermaid(module: ModuleOp, sources: Sources) -> str:
    """A Mermaid flowchart. Raises DiagnosticsError where there is no step."""
    from rpeg.tools.views.graph import graphs
    from rpeg.tools.views.mermaid import mermaid

    return mermaid(graphs(module, sources))


def records(module: ModuleOp, sources: Sources) -> str:
    """JSON. Raises DiagnosticsError where there is no step."""
    from rpeg.tools.views.records import records

    return records(module, sources)


def summary(module: ModuleOp, sources: Sources) -> str:
    """Tables of stages and values. Raises DiagnosticsError where there is no step."""
    from rpeg.tools.views.summary import summary

    return summary(module, sources)


TARGETS: dict[str, Callable[[ModuleOp, Sources], str]] = {
    "rpeg": rpeg,
    "rpeg-dot": dot,
    "rpeg-mermaid": mermaid,
    "rpeg-json": records,
    "rpeg-summary": summary,
}
"""Name -> what writes it; MLIR has options of its own."""
