"""Looking up what a pipeline declares, and where."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Operation

from rpeg.ir.text.locations import own_place

DECLARATIONS = ("rpeg.model", "rpeg.data", "rpeg.verifier", "rpeg.tool", "rpeg.state")


def enclosing(op: Operation, name: str) -> Operation | None:
    """The nearest operation around `op` with this name, `op` included."""
    found: Operation | None = op
    while found is not None and found.name != name:
        found = found.parent_op()
    return found


def pipeline_of(op: Operation) -> Operation | None:
    """The pipeline around an operation."""
    return enclosing(op, "rpeg.pipeline")


def symbol_name(op: Operation) -> str | None:
    """The symbol that an operation defines."""
    held = op.properties.get("sym_name")
    return held.data if isinstance(held, StringAttr) else None


def declarations(op: Operation) -> Iterator[Operation]:
    """Every declaration of the pipeline around `op`."""
    pipeline = pipeline_of(op)
    if pipeline is not None:
        yield from (d for d in pipeline.regions[0].block.ops if d.name in DECLARATIONS)


def declaration(op: Operation, name: str) -> Operation | None:
    """The declaration of `name` in the pipeline around `op`."""
    return next((d for d in declarations(op) if symbol_name(d) == name), None)


def step_of(op: Operation) -> Operation | None:
    """The step of the pipeline around `op`."""
    pipeline = pipeline_of(op)
    if pipeline is None:
        return None
    return next((o for o in pipeline.regions[0].block.ops if o.name == "rpeg.step"), None)


def index_of(step: Operation | None) -> str:
    """The name of a step's index: `i`."""
    held = step.properties.get("index") if step is not None else None
    return held.data if isinstance(held, StringAttr) else "i"


def place_in_file(op: Operation) -> str | None:
    """`line:column` of an operation, if it is known."""
    at = own_place(op)
    return f"{at.line.data}:{at.column.data}" if at is not None else None
