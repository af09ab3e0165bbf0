"""The trainer's end of a publish."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from rpeg.runtime import world
from rpeg.runtime.pools.couriers import Connect, Courier
from rpeg.runtime.pools.wire import Wire
from rpeg.runtime.publish.buckets import Types
from rpeg.runtime.publish.digest import Digest, nothing, shown
from rpeg.runtime.publish.link import Outbox, connect
from rpeg.runtime.publish.plan import Share

if TYPE_CHECKING:
    from rpeg.runtime.run import Run
    from rpeg.runtime.trainer import Trainer


class SentWeights:
    """Weights of a trained model, sent to pool `target` while training goes on.

    The other pool's program makes a `ReceivedWeights` of the same model.
    """

    def __init__(self, run: Run, model: Trainer, *, target: str) -> None:
        self.run = run
        self.name = model.name
        self.version = -1
        """Version that was published last; -1 before the first publish."""
        self.checksum = ""
        """Digest of the whole weights of that version."""
        held = list(model.held_tensors())
        mine = Share(holds=[part for part, _ in held])
        types = {part.tensor: tensor.dtype for part, tensor in held}
        ranks = [*run.pools.ranks(run.pools.mine), *run.pools.ranks(target)]
        name = f"weights of `{self.name}` to `{target}`"
        self._push = Push(name, lambda: (Wire(name, ranks), []), mine, types)
        run.connect(self._push)
        run.watch(self)

    def publish(self, model: Trainer) -> None:
        """Copies the weights and has them sent; waits while the version before is being sent.

        Collective over this pool. Raises what went wrong with the version before.
        """
        with self.run.clock.stage(f"publish_{self.name}"):
            arrays = [tensor for _, tensor in model.held_tensors()]
            part = self._push.put(model.version, arrays)
            self.checksum = shown(sum(world.gather(part), nothing()))
            self.version = model.version


class Push(Courier):
    """The thread that sends one version at a time."""

    def __init__(self, name: str, connect: Connect, mine: Share, types: Types) -> None:
        self._mine, self._types = mine, types
        self._box: Outbox | None = None
        self._version: int | None = None
        super().__init__(name, connect)

    def put(self, version: int, arrays: Sequence[Tensor]) -> Digest:
        """Copies a process's arrays once the version before was sent; see `Outbox.fill`."""
        with self._changed:
            self._wait(lambda: self._box is not None and self._version is None)
            assert self._box is not None, "it was waited for"
            self._version = version
            self._changed.notify_all()
        return self._box.fill(arrays)

    def _work(self, wire: Wire, others: list[int]) -> None:
        box = Outbox(connect(wire, self._mine, self._types))
        with self._changed:
            self._box = box
            self._changed.notify_all()
        while (version := self._next()) is not None:
            box.send(version)
            with self._changed:
                self._version = None
                self._changed.notify_all()
        box.end()

    def _next(self) -> int | None:
        with self._changed:
            self._changed.wait_for(lambda: self._version is not None or self._ending)
            return self._version
