"""Where the parts of operations stand in a text: more than an operation's one location can hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, cached_property

from xdsl.dialects.builtin import FileLineColLoc, IntAttr, StringAttr
from xdsl.ir import Operation

from rpeg.ir.rules.violations import WHOLE, Anchor, Violation
from rpeg.ir.text.diagnostics import Diagnostic, Position, Severity
from rpeg.ir.text.locations import own_place, plan_line


@dataclass
class Sources:
    """Positions of operands, results, settings and clauses, as the front end saw them."""

    file: str
    anchors: dict[Operation, dict[Anchor, Position]] = field(
        default_factory=dict[Operation, dict[Anchor, Position]]
    )
    offsets: dict[Operation, dict[Anchor, int]] = field(
        default_factory=dict[Operation, dict[Anchor, int]]
    )
    """The same for a text whose positions are looked up by offset, which few ever are."""
    place: Callable[[int], Position] | None = None
    """The position of an offset."""

    @cached_property
    def _name(self) -> StringAttr:
        return StringAttr(self.file)

    def location(self, at: Position) -> FileLineColLoc:
        """A position of this file, as an operation's location."""
        return FileLineColLoc(self._name, IntAttr(at.line), _column(at.column))

    def record(self, op: Operation, anchors: dict[Anchor, Position]) -> None:
        """Where the parts of an operation stand."""
        self.anchors.setdefault(op, {}).update(anchors)

    def of(self, op: Operation, copy: Operation) -> Sources:
        """The same for a copy of an operation and of all inside."""
        pairs = list(zip(op.walk(), copy.walk(), strict=True))
        anchors = {new: self.anchors[old] for old, new in pairs if old in self.anchors}
        offsets = {new: self.offsets[old] for old, new in pairs if old in self.offsets}
        return replace(self, anchors=anchors, offsets=offsets)

    def position(self, op: Operation, anchor: Anchor = WHOLE) -> Position:
        """Where a part stands; the whole operation where that is not known."""
        known = self.anchors.get(op, {}).get(anchor)
        offset = self.offsets.get(op, {}).get(anchor)
        if known is None and offset is not None and self.place is not None:
            return self.place(offset)
        return known if known is not None else position_of(op, anchor)

    def violation(self, op: Operation, broken: Violation) -> Diagnostic:
        """The message about a broken rule."""
        found = self.message(op, broken.message, broken.anchor, broken.severity)
        return replace(found, rule=broken.code)

    def message(
        self, op: Operation, text: str, anchor: Anchor = WHOLE, severity: Severity = "error"
    ) -> Diagnostic:
        """A message about a part of an operation, in the file that the operation came from."""
        at = location_of(op)
        file = self.file if at is None else at.filename.data
        return Diagnostic(self.position(op, anchor), text, severity, file)


@cache
def _column(number: int) -> IntAttr:
    """Most columns occur in many operations."""
    return IntAttr(number)


def position_of(op: Operation, anchor: Anchor = WHOLE) -> Position:
    """The position of an operation, or of the nearest one around it that has one; that of the
    plan's line for what the line says of a stage: its attributes, where settings are properties.
    """
    by_plan = anchor.part == "setting" and anchor.key in op.attributes
    at = (plan_line(op) if by_plan else None) or location_of(op)
    return Position(1, 1) if at is None else Position(at.line.data, at.column.data)


def location_of(op: Operation) -> FileLineColLoc | None:
    """The location of an operation, or of the nearest one around it that has one."""
    around: Operation | None = op
    while around is not None:
        at = own_place(around)
        if at is not None:
            return at
        around = around.parent_op()
    return None
