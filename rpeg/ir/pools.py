"""Pools of a placed step: where models train, and which ones an operation keeps busy.

A pool is a process group with a program of its own. What moves between pools is work for both: one
sends, the other takes. A publish is work for the pool that trains alone: what samples reads the
newest version whenever it starts.
"""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from rpeg.ir.ops.effects import EvalOp
from rpeg.ir.ops.movement import PublishOp, TransferOp, model_of, pool_of
from rpeg.ir.ops.sampling import GenerateOp
from rpeg.ir.ops.updates import UpdateOp


def trained_on(step: Operation) -> dict[str, str]:
    """The pool of each model that a step trains, in the order of the text."""
    found: dict[str, str] = {}
    for op in step.walk():
        pool = pool_of(op)
        if isinstance(op, UpdateOp) and pool is not None:
            found.setdefault(op.makes(), pool)
    return found


def home_of(step: Operation) -> str | None:
    """The pool that keeps the run's books: it trains the first model that is sampled from, or the
    first of all.
    """
    trained, sampled = trained_on(step), sampled_from(step)
    first = sorted(trained, key=lambda model: model not in sampled)
    return trained[first[0]] if first else None


def sampled_from(step: Operation) -> set[str | None]:
    """The models that engines of a step work with."""
    return {model_of(op) for op in step.walk() if isinstance(op, GenerateOp | EvalOp)}


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
