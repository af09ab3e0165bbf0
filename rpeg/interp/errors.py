"""What the interpreter refuses."""

from __future__ import annotations

from xdsl.ir import Operation

from rpeg.ir.declared import place_in_file


class InterpreterError(Exception):
    """A pipeline that the interpreter can't run; the message names the operation and the fix."""

    @staticmethod
    def at(op: Operation, problem: str) -> InterpreterError:
        """The error of an operation, with its place in the file where it is known."""
        place = place_in_file(op)
        return InterpreterError(f"{f'{place}: ' if place else ''}{op.name}: {problem}")
