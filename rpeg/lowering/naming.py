"""Python names for the values of a program: the user's own where they are free."""

from __future__ import annotations

import builtins
import keyword
import re

from xdsl.ir import Block, Operation, SSAValue

from rpeg.ir.rrt.program import LoopOp, ProgramOp

TAKEN = frozenset({"rt", "main", *keyword.kwlist, *keyword.softkwlist, *dir(builtins)})


class PythonNames:
    """Gives each value a name; it is free again once the value that has it is not read any more."""

    def __init__(self, program: ProgramOp) -> None:
        self._order = {op: k for k, op in enumerate(program.walk())}
        self._end = len(self._order)
        self._names: dict[SSAValue, str] = {}
        self._holder: dict[str, SSAValue] = {}

    def give(self, value: SSAValue, at: Operation) -> str:
        """The name of a value that `at` makes."""
        wanted = _identifier(value.name_hint or "value")
        name, number = wanted, 1
        while name in self._holder and not self._over(self._holder[name], at):
            number += 1
            name = f"{wanted}_{number}"
        self._names[value], self._holder[name] = name, value
        return name

    def __getitem__(self, value: SSAValue) -> str:
        return self._names[value]

    def _over(self, value: SSAValue, at: Operation) -> bool:
        """Whether nothing at or after `at` reads a value; `at` itself may, as its last reader."""
        return self._last_read(value) <= self._order[at]

    def _last_read(self, value: SSAValue) -> int:
        reads = [self._until(use.operation, value) for use in value.uses]
        return max(reads, default=self._end if isinstance(value.owner, Block) else -1)

    def _until(self, reader: Operation, value: SSAValue) -> int:
        """Until when a read keeps a value: to the end of a loop that it is made outside of."""
        loop = _loop_of(reader)
        owner = value.owner
        if loop is None or (isinstance(owner, Operation) and _loop_of(owner) is loop):
            return self._order[reader]
        return self._end


def _loop_of(op: Operation) -> LoopOp | None:
    around = op.parent_op()
    while around is not None and not isinstance(around, LoopOp):
        around = around.parent_op()
    return around


def _identifier(hint: str) -> str:
    name = re.sub(r"\W", "_", hint, flags=re.ASCII)
    if not name or name[0].isdigit():
        name = f"_{name}"
    return f"{name}_" if name in TAKEN else name
