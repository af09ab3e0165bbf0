"""What connects processes of different pools: a gloo group beside every world.

Processes go by their numbers in the launch. A wire is for one direction and one thread on each
side: whoever sends on it does nothing else with it.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import PrefixStore  # type: ignore[attr-defined]

from rpeg.runtime import world

PATIENCE = timedelta(days=30)
"""A step may take any time; a process that dies closes the connection, which is noticed at once."""


class Wire:
    """Connects processes of a launch. Collective over them, in any thread."""

    def __init__(self, name: str, ranks: Iterable[int]) -> None:
        self.ranks = tuple(sorted(ranks))
        """Of its processes in the launch."""
        launch = world.launch()
        self.place = self.ranks.index(launch.rank)
        """This process's index among them."""
        # A connection of its own: on a shared one, a thread that waits for another process's key
        # keeps the others from setting the keys that this process is waited for.
        own = launch.store.clone()  # type: ignore[attr-defined]
        store = PrefixStore(f"wire/{name}", own)
        self._group: Any = dist.ProcessGroupGloo(store, self.place, len(self.ranks), PATIENCE)

    def send(self, tensor: Tensor, to: int) -> None:
        """Sends a contiguous CPU tensor; returns once the other process takes it."""
        self.start_sending(tensor, to).wait()

    def receive(self, tensor: Tensor, source: int) -> None:
        """Fills a contiguous CPU tensor with what `source` sends."""
        self.start_receiving(tensor, source).wait()

    def start_sending(self, tensor: Tensor, to: int) -> dist.Work:
        """Like `send`, but returns at once; the tensor is left alone until the work is done."""
        work: dist.Work = self._group.send([tensor], self.ranks.index(to), 0)
        return work

    def start_receiving(self, tensor: Tensor, source: int) -> dist.Work:
        """Like `receive`, but returns at once."""
        work: dist.Work = self._group.recv([tensor], self.ranks.index(source), 0)
        return work

    def send_bytes(self, data: Tensor, to: int) -> None:
        """Sends [bytes] uint8 of any length."""
        self.send(torch.tensor([len(data)]), to)
        self.send(data, to)

    def receive_bytes(self, source: int) -> Tensor:
        """[bytes] uint8 that `send_bytes` sent."""
        length = torch.zeros(1, dtype=torch.int64)
        self.receive(length, source)
        data = torch.empty(int(length), dtype=torch.uint8)
        self.receive(data, source)
        return data

    def gather(self, value: Any) -> list[Any]:
        """Every process's value, in the order of `ranks`. Collective over the wire."""
        values = []
        for sender in self.ranks:
            packed = pack(value)
            length = torch.tensor([len(packed)])
            self.broadcast(length, sender)
            data = packed if sender == self.ranks[self.place] else packed.new_empty(int(length))
            self.broadcast(data, sender)
            values.append(unpack(data))
        return values

    def broadcast(self, tensor: Tensor, sender: int) -> None:
        self._group.broadcast(tensor, self.ranks.index(sender)).wait()


def pack(value: Any) -> Tensor:
    """[bytes] uint8: a value, as it is now."""
    buffer = io.BytesIO()
    pickle.dump(value, buffer, protocol=pickle.HIGHEST_PROTOCOL)
    return torch.frombuffer(buffer.getbuffer(), dtype=torch.uint8)


def unpack(data: Tensor) -> Any:
    """The value that `pack` packed; only processes of one launch exchange them."""
    content: np.ndarray[Any, Any] = data.numpy()
    return pickle.loads(content.data)
