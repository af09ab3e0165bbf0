"""References to declarations: what a step reads and holds is declared in its pipeline.

Texts have these messages from the front end, which knows where a name stands.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.ir import Operation

from rpeg.ir.declared import declaration, declarations, symbol_name
from rpeg.ir.ops.sampling import GetOp
from rpeg.ir.ops.step import StepOp, state_key
from rpeg.ir.rules.violations import Violation, hint
from rpeg.ir.rules.walks import Walk
from rpeg.ir.types.buffer import BufferType


def reference_violations(walk: Walk) -> Iterator[tuple[Operation, Violation]]:
    """Each reference to what is not declared."""
    readers: list[StepOp | GetOp] = [*walk.of(StepOp), *walk.of(GetOp)]
    for op in readers:
        for name in _names(op):
            if declaration(op, name) is None:
                known = [n for d in declarations(op) if (n := symbol_name(d)) is not None]
                text = f"`{name}` is not declared in this pipeline{hint(name, known)}"
                yield op, Violation("undeclared", text)


def _names(op: GetOp | StepOp) -> Iterator[str]:
    if isinstance(op, GetOp):
        yield op.symbol_name
        return
    types = (state.type for state in op.states)
    keys = (state_key(t) for t in types if not isinstance(t, BufferType))
    yield from dict.fromkeys(key[1] for key in keys if key is not None)
