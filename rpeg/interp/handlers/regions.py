"""Operations with a region of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.ir import Operation

from rpeg.interp.frame import Frame, Handler
from rpeg.ir.ops import regions as ops
from rpeg.ir.ops.fuse import FuseOp


def every(op: ops.EveryOp, frame: Frame) -> Sequence[object]:
    """The region's states where it runs, the carried ones elsewhere."""
    fires = (frame.step + 1) % op.int_of("steps") == 0 and frame.step >= op.int_of("from")
    return frame.run(op.body.block) if fires else [frame.value(state) for state in op.carried]


def fuse(op: FuseOp, frame: Frame) -> Sequence[object]:
    """One stage after the other: that they share their micro-batches changes no number."""
    return frame.results(op.body.block)


HANDLERS: Mapping[type[Operation], Handler] = {ops.EveryOp: every, FuseOp: fuse}
