"""What the bookkeeping of a run needs of its processes: who am I, wait, gather, let the first one
do it.

Nothing here carries weights or gradients; those travel over the groups of `rpeg.runtime.groups`.
Every function also works in a world of one that never initialised torch.distributed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch.distributed as dist

T = TypeVar("T")


def joined() -> bool:
    """Whether this process belongs to an initialised world."""
    return dist.is_available() and dist.is_initialized()


def rank() -> int:
    """This process's number in the world; before joining, the one that the launcher gave it."""
    return dist.get_rank() if joined() else int(os.environ.get("RANK", "0"))


def size() -> int:
    """Processes in the world."""
    return dist.get_world_size() if joined() else 1


def barrier() -> None:
    """Waits for every process."""
    if size() > 1:
        dist.barrier()


def gather(value: T) -> list[T]:
    """Every process's value, in rank order, on every process. For small picklable values."""
    if size() == 1:
        return [value]
    values: list[Any] = [None] * size()
    dist.all_gather_object(values, value)
    return values


def exchange(parts: Sequence[T]) -> list[T]:
    """Sends `parts[k]` to process k; returns what each process sent to this one, in rank order."""
    if size() == 1:
        return [parts[0]]
    received: list[T] = []
    for source in range(size()):
        box: list[Any] = [None]
        dist.scatter_object_list(box, list(parts) if source == rank() else None, src=source)
        received.append(box[0])
    return received


def on_first(action: Callable[[], T]) -> T:
    """Runs `action` on process 0 and hands its result, or its exception, to every process."""
    box: list[Any] = [None, None]
    if rank() == 0:
        try:
            box[0] = action()
        except Exception as error:
            box[1] = error
    if size() > 1:
        dist.broadcast_object_list(box, src=0)
    if box[1] is not None:
        raise box[1]
    result: T = box[0]
    return result


def is_loss(error: BaseException) -> bool:
    """Whether an error of torch.distributed says that another process is gone."""
    of_gloo = isinstance(error, RuntimeError) and "gloo/transport" in str(error)
    return of_gloo or isinstance(error, dist.DistError)


def first_to_fail() -> bool:
    """True for the process that asks first: its failure is the cause, the others only lost it."""
    if size() == 1:
        return rank() == 0
    store = dist.distributed_c10d._get_default_store()
    try:
        return store.add("rpeg/failed", 1) == 1
    except dist.DistError:  # the launcher is gone: nobody to ask
        return True
