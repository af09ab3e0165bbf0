"""Where the parts of operations stand in a text: more than an operation's one location can hold."""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.dialects.builtin import FileLineColLoc, IntAttr, StringAttr
from xdsl.ir import Operation

from rpeg.ir.diagnostics import Position
from rpeg.ir.violations import Anchor


@dataclass
class Sources:
    """Positions of operands, results, settings and clauses, as the front end saw them."""

    file: str
    anchors: dict[Operation, dict[Anchor, Position]] = field(
        default_factory=dict[Operation, dict[Anchor, Position]]
    )

    def location(self, at: Position) -> FileLineColLoc:
        """A position of this file, as an operation's location."""
        return FileLineColLoc(StringAttr(self.file), IntAttr(at.line), IntAttr(at.column))

    def record(self, op: Operation, anchors: dict[Anchor, Position]) -> None:
        """Where the parts of an operation stand."""
        self.anchors.setdefault(op, {}).update(anchors)

    def position(self, op: Operation, anchor: Anchor) -> Position:
        """Where a part stands; the whole operation where that is not known."""
        known = self.anchors.get(op, {}).get(anchor)
        return known if known is not None else position_of(op)


def position_of(op: Operation) -> Position:
    """The position of an operation, or of the nearest one around it that has one."""
    around: Operation | None = op
    while around is not None:
        at = around.location
        if isinstance(at, FileLineColLoc):
            return Position(at.line.data, at.column.data)
        around = around.parent_op()
    return Position(1, 1)
