"""The four levels as data: what a module of each is made of, and what its pipelines have.

A level is the target of a conversion, as MLIR has them: the operations, types and notes
(discardable attributes, in MLIR's words) that are legal at it. Each pass declares the levels that
it takes and gives, and is held to both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Operation

from rpeg.ir.dialect import ALGORITHM, PLACED, PLANS, Rpeg
from rpeg.ir.ops.declare import PipelineOp
from rpeg.ir.ops.movement import CLAUSES, POOL
from rpeg.ir.ops.sampling import PoisonOp
from rpeg.ir.rrt.calls import ObjectType
from rpeg.ir.rrt.program import Rrt
from rpeg.ir.rsched import TASK, Rsched
from rpeg.ir.rules.violations import Violation
from rpeg.ir.stages import STAGE
from rpeg.ir.types.batches import BATCHES
from rpeg.ir.types.buffer import BufferType
from rpeg.ir.types.values import TYPES, UnknownType

LevelName = Literal["L0", "L1", "L2", "L3"]


@dataclass(frozen=True)
class Level:
    """What is legal at a level."""

    name: LevelName
    says: str
    made_by: str
    """The pass that lowers to it; empty for the front end's level."""
    operations: frozenset[str]
    types: frozenset[str]
    notes: frozenset[str]
    """Attributes of operations, besides their settings."""
    has: str = ""
    """The operation that each pipeline has."""


def _names(defined: Iterable[type[Operation] | type[Attribute]]) -> frozenset[str]:
    return frozenset(each.name for each in defined)


_ALGORITHM = _names(op for family in ALGORITHM for op in family.OPS) - {PoisonOp.name}
_PLANS = _names(op for family in PLANS for op in family.OPS)
_PLACED = _names(op for family in PLACED for op in family.OPS)
_TYPES = _names((*TYPES, *BATCHES)) - {UnknownType.name}
_PLACING = frozenset({STAGE, POOL, *CLAUSES})
"""What a line of a plan says of its stage."""
_NOTES = _PLACING | {TASK}
"""Every note of some level; other attributes are not checked."""

LEVELS: Mapping[LevelName, Level] = {
    level.name: level
    for level in (
        Level(
            "L0",
            "what one step computes",
            "",
            _ALGORITHM | _PLANS,
            _TYPES,
            _PLACING,
        ),
        Level(
            "L1",
            "where each stage runs, and how weights move",
            "rpeg-annotate-parallelism",
            _ALGORITHM | _PLACED,
            _TYPES | {BufferType.name},
            _PLACING,
            has="rpeg.ranks",
        ),
        Level(
            "L2",
            "in which order each process group runs its tasks",
            "rpeg-schedule",
            _ALGORITHM | _PLACED | _names(Rsched.operations),
            _TYPES | {BufferType.name},
            _NOTES,
            has="rsched.sequence",
        ),
        Level(
            "L3",
            "the program, call by call",
            "rpeg-lower-to-programs",
            _names(Rrt.operations),
            _names({ObjectType}),
            frozenset(),
        ),
    )
}
"""By name, from the text to the program."""


def level_violations(module: ModuleOp, name: LevelName) -> Iterator[tuple[Operation, Violation]]:
    """What is illegal in a module at a level: operations, types and notes, and what its pipelines
    lack. Nothing inside an illegal operation is reported.
    """
    level = LEVELS[name]
    for op in _legal_and_first_illegal(module, level):
        for message in _problems(op, level):
            yield op, Violation("illegal-at-level", message)


def _legal_and_first_illegal(around: Operation, level: Level) -> Iterator[Operation]:
    for op in (op for region in around.regions for block in region.blocks for op in block.ops):
        yield op
        if op.name in level.operations:
            yield from _legal_and_first_illegal(op, level)


def _problems(op: Operation, level: Level) -> Iterator[str]:
    if op.name not in level.operations:
        yield f"{op.name} is of {_homes(op.name)}, not of {level.name}{_way(op.name, level)}"
        return
    arguments = (a for region in op.regions for block in region.blocks for a in block.args)
    types = dict.fromkeys(value.type.name for value in (*op.results, *arguments))
    yield from (f"!{t} is not a type of {level.name}" for t in types if t not in level.types)
    notes = sorted((op.attributes.keys() & _NOTES) - level.notes) if _takes_notes(op) else ()
    yield from (f"{op.name} has the note `{note}`, not of {level.name}" for note in notes)
    if isinstance(op, PipelineOp) and level.has not in ("", *(o.name for o in op.body.block.ops)):
        yield f"`{op.title}` has no {level.has}, so it is not of {level.name}: {_first(level)}"


def _takes_notes(op: Operation) -> bool:
    """Whether its attributes are notes: those of a program's call are its settings."""
    return op.dialect_name() == Rpeg.name


def _homes(operation: str) -> str:
    """The levels that an operation is of."""
    homes = [level.name for level in LEVELS.values() if operation in level.operations]
    return " and ".join(homes) or "no level"


def _way(operation: str, level: Level) -> str:
    """Which pass to run, where one makes what is missing."""
    names = list(LEVELS)
    below = [n for n in names[: names.index(level.name)] if operation in LEVELS[n].operations]
    return f": {_first(level)}" if below else ""


def _first(level: Level) -> str:
    return f"run {level.made_by} first"
