"""A program under construction, and why an operation cannot be part of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from xdsl.builder import Builder
from xdsl.ir import Attribute, Operation, SSAValue

from rpeg.ir.ops.movement import model_of
from rpeg.ir.ops.sampling import GetOp
from rpeg.ir.pools import pools_at, task_around
from rpeg.ir.rrt.calls import CallOp
from rpeg.ir.rrt.program import LoopOp
from rpeg.ir.types.values import StateType


@dataclass
class Cannot(Exception):
    """An operation, or a use of it, that this version does not compile."""

    op: Operation
    why: str


class NotHere(Exception):
    """An operation needs something that was already refused, which is not reported twice."""


@dataclass(frozen=True)
class Place:
    """Which of the pools of a pipeline a program is for."""

    pool: str
    home: str
    """The pool that keeps the run's books: it trains what is sampled from."""
    trained: Mapping[str, str]
    """The pool of each model that the step trains."""
    several: bool = False
    """Whether there are others."""
    completion: bool = False
    """Whether groups go into batches in the order in which they end."""

    @property
    def at_home(self) -> bool:
        """Whether this pool keeps the run's books."""
        return self.pool == self.home

    def trains(self, model: str) -> bool:
        """Whether this pool has the weights of a model with an optimizer."""
        return not self.several or self.trained.get(model, self.home) == self.pool

    def runs(self, task: Operation) -> bool:
        """Whether the pool is one of those that a task keeps busy."""
        return not self.several or self.pool in pools_at(task_around(task))


@dataclass
class Program:
    """A program under construction: where instructions go, and what each value became."""

    run: SSAValue
    builder: Builder
    place: Place
    loop: LoopOp | None = None
    ahead: bool = False
    """Whether instructions fill a buffer ahead of the step."""
    groups: Mapping[str, SSAValue] = field(default_factory=dict[str, SSAValue])
    """The process groups of each model, by its name."""
    shares: Mapping[str, SSAValue] = field(default_factory=dict[str, SSAValue])
    """Of each model: process groups over which batches are split, its own where they do."""
    objects: dict[str, SSAValue] = field(default_factory=dict[str, SSAValue])
    """Trainers, frozen models, data, verifiers and states, by declared name."""
    registers: dict[str, SSAValue] = field(default_factory=dict[str, SSAValue])
    """What this pool's engines read, by model."""
    sent: dict[tuple[str, str], SSAValue] = field(default_factory=dict[tuple[str, str], SSAValue])
    """What other pools' engines read, by model and pool."""
    channels: dict[Operation, SSAValue] = field(default_factory=dict[Operation, SSAValue])
    """By transfer."""
    crossed: set[SSAValue] = field(default_factory=set[SSAValue])
    """Channels that the loop has put into, or taken from."""
    engines: dict[str, SSAValue] = field(default_factory=dict[str, SSAValue])
    collects: dict[Operation, SSAValue] = field(default_factory=dict[Operation, SSAValue])
    buffers: dict[Operation, SSAValue] = field(default_factory=dict[Operation, SSAValue])
    flights: dict[Operation, SSAValue] = field(default_factory=dict[Operation, SSAValue])
    """What keeps a generate's samples in flight, in completion order."""
    values: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])

    def call(
        self,
        at: Operation,
        callee: str,
        *things: SSAValue,
        receiver: SSAValue | None = None,
        keywords: Mapping[str, SSAValue] | None = None,
        settings: Mapping[str, Attribute | None] | None = None,
        gives: Sequence[str] = (),
    ) -> CallOp:
        """Adds an instruction; settings that are None are left out."""
        given = {k: v for k, v in (settings or {}).items() if v is not None}
        op = self.builder.insert(CallOp.of(callee, things, given, keywords, receiver, gives))
        op.location = at.location
        return op

    def results(self, op: Operation, call: CallOp) -> None:
        """The results of an operation are those of an instruction, under the same names."""
        for old, new in zip(op.results, call.results, strict=False):
            self.values[old] = new
            new.name_hint = old.name_hint

    def value(self, value: SSAValue) -> SSAValue:
        """What a value of the step became. Raises NotHere if its maker was refused."""
        if isinstance(value.owner, GetOp):
            return self.declared(value.owner.symbol_name)
        if isinstance(value.type, StateType):
            return self.declared(value.type.symbol)
        if value not in self.values:
            raise NotHere
        return self.values[value]

    def declared(self, name: str) -> SSAValue:
        """What a declaration became. Raises NotHere if it was refused."""
        if name not in self.objects:
            raise NotHere
        return self.objects[name]

    def model(self, op: Operation) -> SSAValue:
        """The trainer or frozen model that an operation works with."""
        return self.declared(model_name(op))

    def engine(self, op: Operation) -> SSAValue:
        """The engine of the model that an operation samples from."""
        self.model(op)
        name = model_name(op)
        if name not in self.engines:
            raise Cannot(
                op,
                f"`{name}` samples, but no update of the step trains it: this does not compile yet",
            )
        return self.engines[name]

    def inside(self, builder: Builder, *, ahead: bool = False) -> "Program":
        """The same program, with instructions going elsewhere."""
        return replace(self, builder=builder, ahead=ahead)


def model_name(op: Operation) -> str:
    """The model that an operation works with."""
    name = model_of(op)
    assert name is not None, op.name
    return name
