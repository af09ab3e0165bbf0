"""The operations of a module for rules that ask many of them: it is walked once for all rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from xdsl.ir import Operation

Found = TypeVar("Found", bound=Operation)


class Walk:
    """The operations of a module that no rule changes."""

    def __init__(self, root: Operation) -> None:
        self.root = root
        self.ops: Sequence[Operation] = list(root.walk())
        """All of them, in the order of the text."""
        self._kinds = {type(op) for op in self.ops}
        self._inside: dict[Operation, Sequence[Operation]] = {}

    def of(self, kind: type[Found]) -> Sequence[Found]:
        """Those of a kind."""
        if not any(issubclass(k, kind) for k in self._kinds):
            return ()
        return [op for op in self.ops if isinstance(op, kind)]

    def inside(self, op: Operation) -> Sequence[Operation]:
        """An operation, and those inside it."""
        if op not in self._inside:
            self._inside[op] = list(op.walk())
        return self._inside[op]
