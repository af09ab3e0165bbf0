"""Operations with a region of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch import Tensor
from xdsl.ir import Operation

from rpeg.interp.errors import InterpreterError
from rpeg.interp.frame import Frame, Handler
from rpeg.interp.values import Cursor
from rpeg.ir.ops import regions as ops
from rpeg.ir.ops.fuse import FuseOp
from rpeg.runtime.selection import Where, join, kept_groups, samples_of, too_few
from rpeg.runtime.trajectories import Trajectories


def every(op: ops.EveryOp, frame: Frame) -> Sequence[object]:
    """The region's states where it runs, the carried ones elsewhere."""
    fires = (frame.step + 1) % op.int_of("steps") == 0 and frame.step >= op.int_of("from")
    return frame.run(op.body.block) if fires else [frame.value(state) for state in op.carried]


def collect(op: ops.CollectOp, frame: Frame) -> Sequence[object]:
    """Rounds of the region until enough groups are kept: the first of them, in the order of rounds
    and prompts.
    """
    keep, wanted, rounds = op.body.block.last_op, op.int_of("groups"), op.int_of("max_rounds")
    assert isinstance(keep, ops.KeepOp)
    carried = [frame.value(state) for state in op.carried]
    found = Kept(keep)
    for frame.round in range(rounds):
        values = frame.run(op.body.block, carried)
        found.add(values, frame)
        carried = [value for value in values if isinstance(value, Cursor)]
        if found.groups >= wanted:
            break
    frame.round = None
    if found.groups < wanted:
        raise InterpreterError.at(op, too_few(found.groups, wanted, rounds))
    return found.first(wanted)


class Kept:
    """What the rounds of a collect have kept so far."""

    def __init__(self, keep: ops.KeepOp) -> None:
        self._keep = keep
        self._parts: list[Sequence[object]] = []
        self._n = 1
        self.groups = 0

    def add(self, values: Sequence[object], frame: Frame) -> None:
        """A round's values, one for each operand of the keep."""
        where = cast(Where, self._keep.text_of("where"))
        self._n = frame.trajectories(self._keep.by).n
        groups = kept_groups(frame.tensor(self._keep.by), self._n, where).nonzero().squeeze(1)
        self._parts.append([_rows(value, samples_of(groups, self._n)) for value in values])
        self.groups += len(groups)

    def first(self, groups: int) -> Sequence[object]:
        """The first of the groups; of a cursor where it stands now."""
        chosen = torch.arange(groups * self._n)
        columns = zip(*self._parts, strict=True)
        return [_rows(_joined(column), chosen) for column in columns]


def _rows(value: object, rows: Tensor) -> object:
    if isinstance(value, Trajectories):
        return value.select(rows)
    return value[rows] if isinstance(value, Tensor) else value


def _joined(parts: Sequence[object]) -> object:
    if isinstance(parts[0], Trajectories):
        return join([part for part in parts if isinstance(part, Trajectories)])
    if isinstance(parts[0], Tensor):
        return torch.cat([part for part in parts if isinstance(part, Tensor)])
    return parts[-1]


def fuse(op: FuseOp, frame: Frame) -> Sequence[object]:
    """One stage after the other: that they share their micro-batches changes no number."""
    return frame.results(op.body.block)


HANDLERS: Mapping[type[Operation], Handler] = {
    ops.EveryOp: every,
    ops.CollectOp: collect,
    FuseOp: fuse,
}
