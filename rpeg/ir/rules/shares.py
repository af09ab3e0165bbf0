"""Equal shares: what of a stage divides over the processes that split a batch.

Each process takes as many rows as the others, so that gradients are means over equal parts; what
samples or scores takes whole groups, and an update whole minibatches.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, Operation, SSAValue

from rpeg.ir.base import RpegOp
from rpeg.ir.layout import width_of
from rpeg.ir.ops.regions import CollectOp
from rpeg.ir.ops.sampling import BatchOp
from rpeg.ir.ops.updates import UpdateOp
from rpeg.ir.rules import violations
from rpeg.ir.rules.violations import Violation
from rpeg.ir.types.attributes import RecordAttr
from rpeg.ir.types.batches import DemosType, PairsType, PromptsType
from rpeg.ir.types.values import TrajectoriesType

Shared = tuple[int, str]
"""(how many, how a message says it)."""
WIDEST = 1 << 16
"""No wider dp is proposed: a mistyped figure can be any number."""


def shared(op: Operation) -> Iterator[Shared]:
    """What the processes of an operation of the step take equal shares of."""
    match op:
        case BatchOp():
            size = _count(op, "size")
            yield size, f"a batch of {size} rows"
        case CollectOp():
            groups = _count(op, "groups")
            yield groups, f"a batch of {groups} groups"
        case UpdateOp():
            for loss in op.losses:
                yield from _minibatch(loss, max(1, _count(op, "minibatches")))
        case _:
            yield from (found for v in op.operands for found in _whole(v.type))


def _count(op: RpegOp, name: str) -> int:
    """The value of a setting; 0 where it is not a count, which another rule reports."""
    held = op.value(name)
    return held if isinstance(held, int) else 0


def _whole(held: Attribute) -> Iterator[Shared]:
    """The rows of a batch: those that its groups are of."""
    rows = None
    if isinstance(held, TrajectoriesType):
        rows = held.prompts.data
    elif isinstance(held, PromptsType | DemosType | PairsType):
        rows = held.size.data
    if rows is not None:
        yield rows, f"a batch of {rows} rows"


def _minibatch(loss: SSAValue, parts: int) -> Iterator[Shared]:
    """The batch that a loss trains on, and what one optimizer step takes of it."""
    maker = loss.owner
    held = maker.operands[0].type if isinstance(maker, Operation) and maker.operands else None
    for whole, what in _whole(held) if held is not None else ():
        samples = whole * held.n if isinstance(held, TrajectoriesType) else whole
        if samples % parts == 0:  # else another rule speaks of it
            part = samples // parts
            yield part, f"a minibatch of {samples} / {parts} = {part} samples"
        yield whole, what


def uneven(found: Shared, dp: int) -> str | None:
    """Why so many rows can't be shared by `dp` processes, and what to write; None if they can."""
    size, what = found
    if size <= 0 or dp <= 0 or size % dp == 0:
        return None
    divisors = [n for n in range(1, min(dp, size, WIDEST) + 1) if size % n == 0]
    return (
        f"{what} does not divide over {dp} processes (dp={dp}): write a multiple of {dp}, or a dp "
        f"that divides {size}, such as {divisors[-1]}"
    )


def share_violations(
    stage: Operation, layout: RecordAttr, engine: RecordAttr | None
) -> Iterator[Violation]:
    """The first rows of a stage that its layout can't split evenly.

    An engine that refills hands out samples as its replicas get free, and needs no equal shares.
    """
    if engine is not None and engine.settings.get("name") != StringAttr("embedded"):
        return
    texts = (uneven(found, width_of(layout, "dp")) for found in shared(stage))
    first = next((text for text in texts if text is not None), None)
    if first is not None:
        yield Violation("uneven-shares", first, violations.setting("par"))
