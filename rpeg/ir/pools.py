"""Pools of a placed step: which one trains, and which ones an operation keeps busy.

A pool is a process group with a program of its own. What moves between pools is work for both: one
sends, the other takes. A publish is work for the pool that trains alone: what samples reads the
newest version whenever it starts.
"""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from rpeg.ir.ops.movement import PublishOp, TransferOp, pool_of
from rpeg.ir.ops.updates import UpdateOp


def home_of(step: Operation) -> str | None:
    """The pool that trains: that of the first update."""
    pools = (pool_of(op) for op in step.walk() if isinstance(op, UpdateOp))
    return next((pool for pool in pools if pool is not None), None)


def task_around(op: Operation) -> Operation:
    """The operation of the step's own block that an operation is, or is inside of."""
    parent = op.parent_op()
    while parent is not None and parent.name != "rpeg.step":
        op, parent = parent, parent.parent_op()
    return op


def made_on(value: SSAValue) -> str | None:
    """The pool of the task that makes a value."""
    owner = value.owner
    return _pool(task_around(owner)) if isinstance(owner, Operation) else None


def _pool(task: Operation) -> str | None:
    """The pool of a task, or of the first operation inside that has one."""
    return next((pool for op in task.walk() if (pool := pool_of(op)) is not None), None)


def pools_at(task: Operation) -> tuple[str, ...]:
    """The pools whose sequences hold a task; none where any pool may run it."""
    match task:
        case TransferOp():
            found = [made_on(task.moved), pool_of(task)]
        case PublishOp():
            found = [made_on(task.weights) or pool_of(task)]
        case _:
            found = [_pool(task)]
    return tuple(dict.fromkeys(pool for pool in found if pool is not None))
