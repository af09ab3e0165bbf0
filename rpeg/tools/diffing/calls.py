"""What a program says: its instructions, each with what it reads, and their order."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Operation, SSAValue

from rpeg.ir.rrt.calls import CallOp, ConstantOp, class_of
from rpeg.ir.rrt.program import AheadOp, EveryOp, LoopOp, ProgramOp, RoundsOp
from rpeg.ir.vocabulary.settings import python_value
from rpeg.tools.diffing.items import Item, Ref, shown


def program(op: ProgramOp) -> Iterator[Item]:
    """The items of a program: the process group, each instruction, and their order."""
    yield Item("processes", "", {"group": op.pool.data, "count": op.process_count})
    yield from Calls(op).items()


class Calls:
    """The instructions of a program by name: the first value of each, or what it calls."""

    def __init__(self, op: ProgramOp) -> None:
        self.values: dict[SSAValue, str] = {}
        self.names: dict[Operation, str] = {}
        for inner in op.body.walk():
            self._name(inner)

    def items(self) -> Iterator[Item]:
        """Each instruction, then the order of all of them."""
        for op in self.names:
            yield self._call(op) if isinstance(op, CallOp) else self._region(op)
        yield Item("order", "", {"of": tuple(Ref(name) for name in self.names.values())})

    def _name(self, op: Operation) -> None:
        taken = {*self.names.values(), *self.values.values()}
        for value in (*op.results, *(a for region in op.regions for a in region.block.args)):
            self.values[value] = _unique(value.name_hint or class_of(value).lower(), taken)
            taken.add(self.values[value])
        if isinstance(op, CallOp | EveryOp | LoopOp | RoundsOp | AheadOp):
            called = op.callee.data if isinstance(op, CallOp) else op.name.removeprefix("rrt.")
            own = self.values[op.results[0]] if op.results else _unique(called, taken)
            self.names[op] = own

    def _region(self, op: Operation) -> Item:
        """A loop, rounds or an `every`: what it is of, and the step's number that it gives."""
        own, inner = self.names[op], op.regions[0].block.args
        fields: dict[str, object] = {"of": tuple(map(self._ref, op.operands)), **self._inside(op)}
        if isinstance(op, EveryOp):
            fields |= {"steps": python_value(op.steps), "from": python_value(op.first)}
        kind = op.name.removeprefix("rrt.")
        return Item(kind, own, fields, (own, *(self.values[arg] for arg in inner)))

    def _inside(self, op: Operation) -> dict[str, object]:
        around = op.parent_op()
        return {"inside": Ref(self.names[around])} if around in self.names else {}

    def _call(self, op: CallOp) -> Item:
        owner = {"of": self._ref(op.receiver)} if op.receiver is not None else {}
        named = {name: self._ref(value) for name, value in op.named.items()}
        settings = {name: python_value(held) for name, held in op.settings.items()}
        things = tuple(map(self._ref, op.things))
        reads = {"reads": things, **named, **settings}
        fields = {"calls": op.callee.data, **owner, **self._inside(op), **reads}
        given = (f"{name}={shown(value)}" for name, value in {**named, **settings}.items())
        text = f"{op.callee.data}({', '.join([*map(str, things), *given])})"
        results = tuple(self.values[r] for r in op.results)
        return Item("call", self.names[op], fields, (self.names[op], *results), text)

    def _ref(self, value: SSAValue) -> Ref:
        owner = value.owner
        if isinstance(owner, ConstantOp):
            held = owner.properties.get("symbol")
            return Ref(held.data if isinstance(held, StringAttr) else self.values[value])
        return Ref(self.values[value])


def _unique(wanted: str, taken: set[str]) -> str:
    name, number = wanted, 2
    while name in taken:
        name, number = f"{wanted}_{number}", number + 1
    return name
