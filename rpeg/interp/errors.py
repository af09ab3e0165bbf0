"""What the interpreter refuses."""

from __future__ import annotations

from xdsl.ir import Operation

from rpeg.ir.text.locations import own_place


class InterpreterError(Exception):
    """A pipeline that the interpreter can't run; the message names the operation and the fix."""

    @staticmethod
    def at(op: Operation, problem: str) -> InterpreterError:
        """The error of an operation, with its place in the file where it is known."""
        at = own_place(op)
        place = f"{at.filename.data}:{at.line.data}:{at.column.data}: " if at is not None else ""
        return InterpreterError(f"{place}{op.name}: {problem}")
