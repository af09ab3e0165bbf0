"""A rule of all programs (L3) of a pipeline: what one puts into a channel, another one takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.ir import Operation

from rpeg.ir.rrt.calls import CallOp, class_of
from rpeg.ir.rrt.instructions import ANY
from rpeg.ir.rrt.program import ProgramOp
from rpeg.ir.rules.violations import Violation
from rpeg.ir.rules.walks import Walk
from rpeg.ir.vocabulary.settings import python_value

ENDS = ("source", "target", "capacity", "max_lag", "bound", "old_spans")
"""Settings that both programs give alike."""


@dataclass(frozen=True)
class End:
    """A program's end of a channel."""

    pool: str
    made: CallOp
    moves: Sequence[CallOp] = field(default_factory=list[CallOp])
    """Where it puts and takes."""

    def setting(self, name: str) -> object:
        """A setting of the channel."""
        return python_value(self.made.settings.get(name))


def channel_violations(walk: Walk) -> Iterator[tuple[Operation, Violation]]:
    """Channels that only one program makes, that two make unlike, and batches that are taken for
    others than were put.
    """
    pipelines: dict[object, list[ProgramOp]] = {}
    for op in walk.of(ProgramOp):
        if op.start is not None:
            pipelines.setdefault(op.start.settings.get("pipeline"), []).append(op)
    for programs in pipelines.values():
        for name, ends in _channels(programs).items():
            yield from _violations(name, ends)


def _channels(programs: Sequence[ProgramOp]) -> Mapping[object, list[End]]:
    found: dict[object, list[End]] = {}
    for program in programs:
        calls = [op for op in program.walk() if isinstance(op, CallOp)]
        for made in (op for op in calls if op.callee.data == "Channel" and op.results):
            moves = [op for op in calls if op.receiver is made.results[0]]
            end = End(program.pool.data, made, moves)
            found.setdefault(end.setting("name"), []).append(end)
    return found


def _violations(name: object, ends: Sequence[End]) -> Iterator[tuple[Operation, Violation]]:
    first = ends[0]
    wanted = [first.setting("source"), first.setting("target")]
    if sorted(end.pool for end in ends) != sorted(map(str, wanted)):
        made = " and ".join(f"`{end.pool}`" for end in ends)
        text = (
            f"channel `{name}` goes from `{wanted[0]}` to `{wanted[1]}`: the programs of both make "
            f"it, and no other; made by {made}"
        )
        yield first.made, Violation("channel-ends", text)
        return
    for end in ends[1:]:
        unlike = next((s for s in ENDS if end.setting(s) != first.setting(s)), None)
        if unlike is not None:
            text = (
                f"channel `{name}`: {unlike} is {end.setting(unlike)} here, and "
                f"{first.setting(unlike)} in the program of `{first.pool}`: write the same"
            )
            yield end.made, Violation("channel-ends", text)
            return
    by_pool = {end.pool: end for end in ends}
    yield from _unlike(name, by_pool[str(wanted[0])], by_pool[str(wanted[1])])


def _unlike(name: object, source: End, target: End) -> Iterator[tuple[Operation, Violation]]:
    """What is put and taken, once each in every step."""
    puts = [op for op in source.moves if op.callee.data == "put"]
    takes = [op for op in target.moves if op.callee.data == "take"]
    if len(puts) != 1 or len(takes) != 1:
        text = (
            f"channel `{name}`: each step puts once and takes once; the program of "
            f"`{source.pool}` puts {len(puts)} times, that of `{target.pool}` takes {len(takes)}"
        )
        yield source.made, Violation("channel-ends", text)
        return
    put = [class_of(value) for value in puts[0].things]
    taken = [class_of(value) for value in takes[0].results]
    fits = len(put) == len(taken) and all(
        a == b or ANY in (a, b) for a, b in zip(put, taken, strict=True)
    )
    if not fits:
        text = f"channel `{name}` carries {', '.join(put)}, not {', '.join(taken) or 'nothing'}"
        yield takes[0], Violation("channel-ends", text)
