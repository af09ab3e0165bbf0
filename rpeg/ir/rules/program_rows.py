"""Rules of programs (L3) about batches: rows that line up, buffers that hold them, their age.

A value of rows belongs to the trajectories, or to the pairs, that it was computed from. What a
buffer or a channel gives are others than were put in: those of an earlier step.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.ir import SSAValue

from rpeg.ir.declared import enclosing
from rpeg.ir.rrt.calls import CallOp, calls, class_of
from rpeg.ir.rules import violations
from rpeg.ir.rules.staleness import COVERS
from rpeg.ir.rules.violations import Violation
from rpeg.ir.text.naming import name_of
from rpeg.ir.vocabulary.settings import python_value

ROWS = ("Trajectories", "Pairs")
FIELDS = ("TokenField", "ResponseField", "Loss")
"""Values with a row for each sample of a batch, or made of such."""
SEVERAL = "remax_advantage"
"""The instruction that compares two batches: the samples, and the greedy answers."""
LOSSES = ("ppo_clip", "cispo", "policy_gradient", "distill")
"""Losses that stand for a correction of their batch's age; the others follow them."""


def batch_of(value: SSAValue) -> SSAValue | None:
    """The rows that a value belongs to; of a collect, the collect. None where that is unknown."""

    maker, cls = value.owner, class_of(value)
    if not isinstance(maker, CallOp) or cls not in (*ROWS, *FIELDS):
        return None
    if maker.receiver is not None and class_of(maker.receiver) == "Collect":
        return maker.receiver
    found = [value] if cls in ROWS else [r for r in maker.results if class_of(r) in ROWS]
    if found:
        return found[0]
    read = next((v for v in maker.things if class_of(v) in (*ROWS, *FIELDS)), None)
    return batch_of(read) if read is not None else None


def row_violations(call: CallOp) -> Iterator[Violation]:
    """What is computed with together is of the same rows."""
    if call.callee.data == SEVERAL:
        return
    first: SSAValue | None = None
    for number, value in enumerate(call.operands):
        rows = batch_of(value)
        if rows is None or rows is batch_of(first or value):
            first = first or (value if rows is not None else None)
            continue
        assert first is not None
        yield Violation(
            "mixed-trajectories",
            f"{call.callee.data}: `{name_of(value)}` is of other rows than `{name_of(first)}`: "
            f"take both of {_maker(batch_of(first))}, or both of {_maker(rows)}",
            violations.operand(number),
        )
        return


def _maker(rows: SSAValue | None) -> str:
    """A batch by the instruction that makes it."""

    assert rows is not None
    maker = rows.owner
    return f"`{name_of(rows)}`" + (f" ({maker.callee.data})" if isinstance(maker, CallOp) else "")


# ---- buffers


def buffer_violations(call: CallOp) -> Iterator[Violation]:
    """A buffer has room for what is ahead of the step; each step puts a batch, and takes one."""
    program, kind = enclosing(call, "rrt.program"), call.callee.data
    if kind not in ("TrajectoryBuffer", "Channel") or program is None or not call.results:
        return
    moves = [c for c in calls(program) if c.receiver is call.results[0]]
    capacity, needed = python_value(call.settings.get("capacity")), 1
    if kind == "TrajectoryBuffer":
        yield from _ends(call, moves)
        needed += _ahead(call, moves)
    if isinstance(capacity, int) and capacity < needed:
        yield Violation(
            "buffer-too-small",
            f"capacity={capacity}: up to {needed} wait in it for their step; write "
            f"capacity = {needed}",
            violations.setting("capacity"),
        )


def _ends(call: CallOp, moves: list[CallOp]) -> Iterator[Violation]:
    order = [c.callee.data for c in moves if _each_step(c)]
    if order != ["put", "take"]:
        found = ", ".join(order) or "nothing"
        yield Violation(
            "channel-ends",
            f"buffer `{_title(call)}`: each step puts one batch, then takes one; here: {found}",
        )


def _each_step(call: CallOp) -> bool:
    """Whether it runs for every step, in each round of a collect if it is in one."""
    around = call.parent_op()
    while around is not None and around.name in ("rrt.ahead", "rrt.rounds"):
        around = around.parent_op()
    return around is not None and around.name == "rrt.loop"


def _ahead(call: CallOp, moves: list[CallOp]) -> int:
    """How many batches of later steps wait in a buffer."""
    puts = (c for c in moves if c.callee.data == "put")
    return _lag(call)[0] if any(enclosing(c, "rrt.ahead") is not None for c in puts) else 0


def _title(call: CallOp) -> object:
    return python_value(call.settings.get("name"))


# ---- age


def lag_violations(call: CallOp) -> Iterator[Violation]:
    """A policy loss is given no older samples than its correction covers."""
    if call.callee.data not in LOSSES or not call.things:
        return
    source = _holder(call.things[0])
    how = _correction(call)
    oldest, bound = _lag(source) if source is not None else (0, "strict")
    if oldest <= COVERS[how] and (bound != "head" or how == "weighted"):
        return
    assert source is not None
    yield Violation(
        "uncorrected-lag" if COVERS[how] == 0 else "lag-beyond-correction",
        f"`{_title(source)}` gives samples up to {oldest} versions old"
        f"{' when admitted (bound=head)' if bound == 'head' else ''}, {call.callee.data} covers "
        f"{COVERS[how]} here ({how}): {_narrowed(how)}",
        violations.operand(0),
    )


def _narrowed(how: str) -> str:
    covered = f"write max_lag = {COVERS[how]} there"
    return covered if how == "weighted" else f"{covered}, or weigh the tokens with importance"


def _correction(loss: CallOp) -> str:
    """How a loss corrects for age: a key of COVERS."""

    if "weight" in loss.named:
        return "weighted"
    old = loss.things[2].owner if len(loss.things) > 2 else None
    recorded = isinstance(old, CallOp) and old.callee.data in ("generate", "take", "token_field")
    return "anchored at behaviour" if recorded else "uncorrected"


def _holder(y: SSAValue) -> CallOp | None:
    """What held a batch until its step: a buffer, a channel or a collect, as it was made."""

    rows = batch_of(y)
    taken = rows.owner if rows is not None else None
    held = taken.receiver if isinstance(taken, CallOp) and taken.callee.data == "take" else rows
    maker = held.owner if held is not None else None
    known = isinstance(maker, CallOp) and "max_lag" in maker.settings
    return maker if known and isinstance(maker, CallOp) else None


def _lag(holder: CallOp) -> tuple[int, str]:
    """(steps, bound) of what a holder was told of the age of its batches."""
    lag = python_value(holder.settings.get("max_lag"))
    return lag if isinstance(lag, int) else 0, str(python_value(holder.settings.get("bound")))
