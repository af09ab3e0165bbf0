"""The `rpeg` dialect (L0 and L1): what xDSL registers."""

from __future__ import annotations

from xdsl.ir import Dialect

from rpeg.ir.base import CheckedOp
from rpeg.ir.ops import (
    allow,
    buffers,
    declare,
    effects,
    fuse,
    losses,
    movement,
    plan,
    preference,
    regions,
    rewards,
    sampling,
    step,
    streams,
    updates,
)
from rpeg.ir.types.attributes import BytesAttr, RecordAttr, SecondsAttr
from rpeg.ir.types.batches import BATCHES
from rpeg.ir.types.buffer import BufferType
from rpeg.ir.types.values import TYPES

ALGORITHM = (
    declare,
    allow,
    step,
    sampling,
    rewards,
    losses,
    preference,
    updates,
    effects,
    regions,
    fuse,
)
"""What one step computes."""
PLANS = (plan,)
"""Where a text wants it to run."""
PLACED = (movement, buffers, streams)
"""Where it runs, and how values get there."""
FAMILIES = (*ALGORITHM, *PLANS, *PLACED)

OPERATIONS: tuple[type[CheckedOp], ...] = tuple(op for family in FAMILIES for op in family.OPS)
"""Every operation, in the order of the documentation."""

Rpeg = Dialect(
    "rpeg", list(OPERATIONS), [*TYPES, *BATCHES, BufferType, SecondsAttr, BytesAttr, RecordAttr]
)
