"""What crosses from pool to pool: a channel for each operation that makes it and each pool that
reads it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, Operation, SSAValue

from rpeg.ir.base import RpegOp
from rpeg.ir.ops.movement import TransferOp, pool_of
from rpeg.ir.ops.sampling import GenerateOp
from rpeg.ir.ops.step import StepOp
from rpeg.ir.pools import made_on
from rpeg.ir.rsched import label_of
from rpeg.ir.text.naming import name_of, trajectories_of
from rpeg.ir.types.attributes import plain
from rpeg.ir.types.values import TokenFieldType, TrajectoriesType
from rpeg.passes.programs.handlers import compiles, divides
from rpeg.passes.programs.program import Program


@dataclass(frozen=True)
class Crossing:
    """The transfers of what one operation makes to one pool."""

    name: str
    """Of the operation; with the pool, where it sends to several."""
    source: str
    target: str
    transfers: Sequence[TransferOp]

    @property
    def window(self) -> int:
        """How many steps older than the newest the weights may be that sampled it."""
        y = trajectories_of(self.transfers[0].moved)
        return y.type.lag[1] if y is not None and isinstance(y.type, TrajectoriesType) else 0

    @property
    def old_spans(self) -> Attribute | None:
        """What becomes of spans past the bound: those that can be there when it is taken."""
        y = trajectories_of(self.transfers[0].moved)
        maker = None if y is None else y.owner
        said = maker.old_spans if isinstance(maker, GenerateOp) else None
        return None if said == plain("regenerate") else said

    @property
    def bound(self) -> str | None:
        """What holds that; None where no trajectories cross."""
        types = (op.moved.type for op in self.transfers)
        held = next((t for t in types if isinstance(t, TrajectoriesType)), None)
        return None if held is None else held.bound or "strict"


def crossings(step: StepOp) -> list[Crossing]:
    """All that crosses within a step, in the order of the text."""
    found: dict[tuple[Operation, str], list[TransferOp]] = {}
    for op in step.body.block.ops:
        if isinstance(op, TransferOp):
            maker = op.moved.owner
            assert isinstance(maker, Operation), "an operation of the step makes rows"
            found.setdefault((maker, pool_of(op) or ""), []).append(op)
    makers = [maker for maker, _ in found]
    return [
        Crossing(
            name=_name(maker) if makers.count(maker) == 1 else f"{_name(maker)}_to_{target}",
            source=made_on(transfers[0].moved) or "",
            target=target,
            transfers=transfers,
        )
        for (maker, target), transfers in found.items()
    ]


def _name(maker: Operation) -> str:
    return label_of(maker) or name_of(maker.results[0])


def declare(program: Program, crossing: Crossing) -> None:
    """The channel of a crossing that this program takes part in. What a pool that trains takes is
    held to the bound of its window there.
    """
    settings: dict[str, Attribute] = {
        "name": StringAttr(crossing.name),
        "source": StringAttr(crossing.source),
        "target": StringAttr(crossing.target),
        "capacity": plain(max(1, crossing.window)),
    }
    if crossing.bound is not None and crossing.target in program.place.trained.values():
        settings |= {"max_lag": plain(crossing.window), "bound": plain(crossing.bound)}
        if program.place.completion and crossing.old_spans is not None:
            settings["old_spans"] = crossing.old_spans
    first = crossing.transfers[0]
    channel = program.call(first, "Channel", program.run, settings=settings).results[0]
    channel.name_hint = f"{crossing.name}_channel"
    program.channels.update(dict.fromkeys(crossing.transfers, channel))


@compiles(TransferOp)
def _transfer(program: Program, op: RpegOp) -> None:
    """The first transfer of a crossing moves what all of them do."""
    channel = program.channels[op]
    together = [t for t, c in program.channels.items() if c is channel]
    moved = [t.operands[0] for t in together]
    if pool_of(op) != program.place.pool:
        if channel not in program.crossed:
            program.call(op, "put", *map(program.value, moved), receiver=channel)
    elif channel not in program.crossed:
        _take(program, op, channel, moved)
        arrived = (t.results[0] for t in together)
        program.values.update(zip(arrived, map(program.value, moved), strict=True))
    program.crossed.add(channel)


def _take(program: Program, op: RpegOp, channel: SSAValue, moved: Sequence[SSAValue]) -> None:
    assert program.loop is not None
    for value in moved:
        if isinstance(value.type, TrajectoriesType):
            size = value.type.prompts.data
            divides(op, (size, f"a batch of {size} groups of `{name_of(value)}`"))
    step = {"step": program.loop.step}
    classes = [_class(value.type) for value in moved]
    taken = program.call(op, "take", receiver=channel, keywords=step, gives=classes)
    for value, result in zip(moved, taken.results, strict=True):
        program.values[value] = result
        result.name_hint = value.name_hint


def _class(held: Attribute) -> str:
    """The runtime's class of a value that crosses."""
    if isinstance(held, TrajectoriesType):
        return "Trajectories"
    return "TokenField" if isinstance(held, TokenFieldType) else "ResponseField"
