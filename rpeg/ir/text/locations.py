"""Where operations come from: their own place in a file, and the line of the plan that placed them.

A placed stage's location fuses both, its own first; what is made of the stage inherits it.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ArrayAttr, FileLineColLoc, FusedLoc, NoneAttr
from xdsl.ir import Operation


def own_place(op: Operation) -> FileLineColLoc | None:
    """Where an operation itself stands, if that is known."""
    return next(iter(_places(op)), None)


def plan_line(op: Operation) -> FileLineColLoc | None:
    """The line of the plan that placed a stage, if one did."""
    return next(iter(_places(op)[1:]), None)


def place_by(op: Operation, line: Operation) -> None:
    """Notes that a line of a plan placed a stage."""
    here, there = own_place(op), own_place(line)
    if here is not None and there is not None:
        op.location = FusedLoc(ArrayAttr([here, there]), NoneAttr())


def _places(op: Operation) -> list[FileLineColLoc]:
    at = op.location
    fused = at.locations if isinstance(at, FusedLoc) else None
    parts = fused.data if isinstance(fused, ArrayAttr) else (at,)
    return [part for part in parts if isinstance(part, FileLineColLoc)]
