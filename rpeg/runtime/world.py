"""What the bookkeeping of a run needs of its processes: who am I, wait, gather, let the first one
do it.

A launch is everything that a launcher started; its processes may form several pools, each of which
is a world of its own to torch.distributed, and so to Megatron-Core: `rank`, `size` and all that
gathers here mean the process's own world. Between pools there are only the wires of
`rpeg.runtime.pools`.

Nothing here carries weights or gradients; those travel over the groups of `rpeg.runtime.groups`.
Every function also works in a world of one that never initialised torch.distributed.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn, TypeVar

import torch.distributed as dist
from torch.distributed import (  # type: ignore[attr-defined]
    HashStore,
    PrefixStore,
    Store,
    rendezvous,
)

T = TypeVar("T")


@dataclass(frozen=True)
class Launch:
    """What the launcher started, as one of its processes sees it."""

    store: Store
    rank: int
    """This process's number among all."""
    processes: int


@cache
def launch() -> Launch:
    """The launch that this process belongs to, which it meets when it asks first.

    The store's keys belong to this attempt only: without that, a restarted process looks for its
    peers at the addresses of the dead ones.
    """
    if "RANK" not in os.environ:
        return Launch(HashStore(), 0, 1)
    store, rank, processes = next(rendezvous("env://"))
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return Launch(PrefixStore(f"attempt/{attempt}", store), rank, processes)


def process() -> int:
    """This process's number in the launch, by which the launcher names it."""
    return int(os.environ.get("RANK", "0"))


def processes() -> int:
    """Processes of the launch: those of all pools."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def joined() -> bool:
    """Whether this process belongs to an initialised world."""
    return dist.is_available() and dist.is_initialized()


def exit_at_once() -> None:
    """Says that all is done: when its program is through, this process of several exits with code 0
    and does not take the interpreter apart, for a thread of a group of gloo's that drops a tensor
    meanwhile aborts the process.
    """
    if processes() > 1:
        atexit.register(exit_now, 0)


def exit_now(code: int) -> NoReturn:
    """Exits after what is to be done at exit, and waits for no thread."""
    atexit.unregister(exit_now)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def rank() -> int:
    """This process's number in its world; before joining, in the launch."""
    return dist.get_rank() if joined() else process()


def size() -> int:
    """Processes in this process's world."""
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
    if processes() == 1:
        return True
    try:
        return launch().store.add("rpeg/failed", 1) == 1
    except dist.DistError:  # the launcher is gone: nobody to ask
        return True
