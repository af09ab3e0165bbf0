"""The way from the processes that hold a model to those that want it: one wire, used by one thread
on each process.

A version is a line (its number), its buckets, and a line (the digest of what was sent to this
receiver). Nothing is checked on arrival: a version that is never used costs no more than its bytes,
and whoever uses one takes the digest of what it then has. A line with `END` says that none follows.
Messages between two processes keep their order, so that none has an address of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from queue import SimpleQueue

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from rpeg.runtime.errors import ModelFailure
from rpeg.runtime.pools.wire import Wire
from rpeg.runtime.publish.buckets import Types, empty, pack, stretch, unpack
from rpeg.runtime.publish.digest import WORDS, Digest, nothing
from rpeg.runtime.publish.plan import BUCKET_BYTES, Bucket, Share, plan
from rpeg.sharding.boxes import NotHeldError

END = -1
STAGING_BUFFERS = 2
"""Buffers for buckets that must be unpacked: one is unpacked while another travels."""


@dataclass(frozen=True)
class Link:
    """What every process of a publish agrees on."""

    wire: Wire
    buckets: tuple[Bucket, ...]
    types: Types

    @property
    def me(self) -> int:
        """This process."""
        return self.wire.ranks[self.wire.place]

    @property
    def receivers(self) -> list[int]:
        """Who gets anything."""
        return sorted({rank for bucket in self.buckets for rank in bucket.targets})


def connect(wire: Wire, mine: Share, types: Types, bucket_bytes: int = BUCKET_BYTES) -> Link:
    """Collective over the wire; `types` are those of what this process holds.

    Raises ModelFailure if a process wants what none holds.
    """
    parties = wire.gather((mine, dict(types)))
    shares = {rank: share for rank, (share, _) in zip(wire.ranks, parties, strict=True)}
    known = {name: dtype for _, found in parties for name, dtype in found.items()}
    widths = {name: dtype.itemsize for name, dtype in known.items()}
    try:
        return Link(wire, tuple(plan(shares, widths, bucket_bytes)), known)
    except NotHeldError as error:
        raise ModelFailure(f"two pools have unlike shapes of one model: {error}") from error


class Outbox:
    """Sends versions: what one thread fills bucket by bucket, another sends meanwhile."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._mine = [bucket for bucket in link.buckets if bucket.source == link.me]
        self._messages = [empty(bucket.size) for bucket in self._mine]
        self._targets = sorted({rank for bucket in self._mine for rank in bucket.targets})
        self._totals: dict[int, Digest] = {}
        self._filled: SimpleQueue[Tensor] = SimpleQueue()

    def fill(self, arrays: Sequence[Tensor]) -> Digest:
        """Copies what goes out of this process's arrays, after all of the version before was sent.

        The digest of what the first receiver of all gets of it: over all senders, these add up to
        the digest of what that one wants.
        """
        self._totals = {rank: nothing() for rank in self._targets}
        for bucket, message in zip(self._mine, self._messages, strict=True):
            part = pack(bucket, message, arrays, self._link.types)
            for rank in bucket.targets:
                self._totals[rank] += part
            self._filled.put(message)
        return self._totals.get(self._link.receivers[0], nothing())

    def send(self, version: int) -> None:
        """Sends what `fill` copied; returns once none of it is needed any more."""
        flying = [self._line(rank, version, nothing()) for rank in self._targets]
        for bucket in self._mine:
            message = self._filled.get()
            flying.extend(self._start(message, rank) for rank in bucket.targets)
        flying.extend(self._line(rank, version, self._totals[rank]) for rank in self._targets)
        for work in flying:
            work.wait()

    def end(self) -> None:
        """Says that nothing follows."""
        for work in [self._line(rank, END, nothing()) for rank in self._targets]:
            work.wait()

    def _line(self, rank: int, version: int, total: Digest) -> dist.Work:
        return self._start(torch.from_numpy(np.array([version, *total.view(np.int64)])), rank)

    def _start(self, message: Tensor, rank: int) -> dist.Work:
        return self._link.wire.start_sending(message, rank)


class Inbox:
    """Receives versions, one after the other."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._expected = list(_expected(link))
        self._sources = sorted({bucket.source for bucket, _ in self._expected})
        self._staging: dict[int, Tensor] = {}

    def next_version(self) -> int | None:
        """Waits until a version is on its way; None if none follows."""
        versions = {int(self._line(source)[0]) for source in self._sources}
        assert len(versions) == 1, "a model's processes publish together"
        version = versions.pop()
        return None if version == END else version

    def receive(self, arrays: Sequence[Tensor]) -> Digest:
        """Its buckets, into this process's arrays; the digest of what was sent, which whoever uses
        the arrays compares with theirs.
        """
        flying: deque[_Arriving] = deque()
        free = list(range(STAGING_BUFFERS))
        for bucket, place in self._expected:
            into = stretch(bucket, place, arrays)
            while into is None and not free:
                free += self._land(flying, arrays)
            staged = free.pop() if into is None else None
            flying.append(self._expect(bucket, place, into, staged))
        while flying:
            self._land(flying, arrays)
        lines = [self._line(source)[1:] for source in self._sources]
        return sum((line.numpy().view(np.uint64) for line in lines), nothing())

    def _line(self, source: int) -> Tensor:
        line = torch.empty(1 + WORDS, dtype=torch.long)
        self._link.wire.receive(line, source)
        return line

    def _expect(
        self, bucket: Bucket, place: int, into: Tensor | None, staged: int | None
    ) -> _Arriving:
        """Starts to receive a bucket, where it belongs or in a staging buffer."""
        message = into if staged is None else self._buffer(staged)[: bucket.size]
        assert message is not None, "it goes somewhere"
        work = self._link.wire.start_receiving(message, bucket.source)
        return _Arriving(bucket, place, message, staged, work)

    def _land(self, flying: deque[_Arriving], arrays: Sequence[Tensor]) -> list[int]:
        """Waits for the first of the buckets; the staging buffer that it leaves, if it had one."""
        arriving = flying.popleft()
        arriving.work.wait()
        if arriving.staged is None:
            return []
        unpack(arriving.bucket, arriving.message, arriving.place, arrays, self._link.types)
        return [arriving.staged]

    def _buffer(self, number: int) -> Tensor:
        if number not in self._staging:
            self._staging[number] = empty(max(bucket.size for bucket, _ in self._expected))
        return self._staging[number]


@dataclass(frozen=True)
class _Arriving:
    """A bucket on its way to this process."""

    bucket: Bucket
    place: int
    """Which of its targets this process is."""
    message: Tensor
    staged: int | None
    """Number of its staging buffer; None if its bytes arrive where they belong."""
    work: dist.Work


def _expected(link: Link) -> Iterator[tuple[Bucket, int]]:
    """(bucket, which of its targets this process is), the sources in turn."""
    by_source: dict[int, list[tuple[Bucket, int]]] = {}
    for bucket in link.buckets:
        for place, rank in enumerate(bucket.targets):
            if rank == link.me:
                by_source.setdefault(bucket.source, []).append((bucket, place))
    rounds = chain.from_iterable(zip_longest(*by_source.values()))
    return (found for found in rounds if found is not None)
