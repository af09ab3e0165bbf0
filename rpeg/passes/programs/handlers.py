"""The table of what compiles, and what its handlers share."""

from collections.abc import Callable

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, Operation

from rpeg.ir.base import RpegOp
from rpeg.ir.layout import width_of
from rpeg.ir.ops.movement import clause_of, pool_of
from rpeg.ir.pools import task_around
from rpeg.ir.rules.shares import Shared, uneven
from rpeg.ir.stages import stages
from rpeg.passes.layouts import layout_of
from rpeg.passes.programs.program import Cannot, Program

Handler = Callable[[Program, RpegOp], None]
HANDLERS: dict[type[RpegOp], Handler] = {}
"""The operations that this version compiles; any other is refused by name."""


def compiles(*kinds: type[RpegOp]) -> Callable[[Handler], Handler]:
    """Registers the handler of some kinds of operations."""

    def register(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(kinds, handler))
        return handler

    return register


def lower(program: Program, op: RpegOp) -> None:
    """Adds the instructions of one operation."""
    handler = HANDLERS.get(type(op))
    if handler is None:
        raise not_yet(op)
    handler(program, op)


def not_yet(op: RpegOp) -> Cannot:
    """The refusal of an operation that does not compile."""
    return Cannot(op, f"`{op.SURFACE or op.name}` checks and prints, but does not compile yet")


def need(op: RpegOp, name: str, value: object, why: str) -> None:
    """Refuses a setting that this version does not compile."""
    if op.value(name) not in (value, None):
        shown = op.value(name)
        raise Cannot(op, f"{op.SURFACE}: {name}={shown} {why}")


def divides(op: Operation, found: Shared, *, model: str | None = None) -> None:
    """Refuses rows that do not give every process of the pool an equal share: in every layout, or
    in that of one model.
    """
    pool = pool_of(op) or pool_of(task_around(op))
    placed = [o for o in stages(op).values() if pool in (None, pool_of(o))]
    layouts = [clause_of(o, "par") for o in placed] if model is None else [layout_of(model, placed)]
    for layout in layouts:
        why = uneven(found, 1 if layout is None else width_of(layout, "dp"))
        if why is not None:
            raise Cannot(op, why)


def title(op: RpegOp) -> Attribute:
    """The name that a metric is reported under."""
    return op.attributes.get("stage") or StringAttr(op.results[0].name_hint or op.SURFACE)
