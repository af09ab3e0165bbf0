"""The generator's end of a publish: versions arrive beside the work, a step takes one of them."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rpeg.runtime import world
from rpeg.runtime.errors import GenerationFailure, RuntimeFailure, WeightMismatch
from rpeg.runtime.groups import device
from rpeg.runtime.interfaces import NamedTensors, Sampled
from rpeg.runtime.pools.admission import Choice, Versions, Window
from rpeg.runtime.pools.choices import renewal
from rpeg.runtime.pools.couriers import Connect, Courier
from rpeg.runtime.pools.wire import Wire
from rpeg.runtime.publish.digest import checksum, shown
from rpeg.runtime.publish.link import Inbox, Link, connect
from rpeg.runtime.publish.plan import Share
from rpeg.sharding.boxes import Box, Held, Shape

if TYPE_CHECKING:
    from rpeg.runtime.run import Run


@dataclass(eq=False)
class Copy:
    """Room for the whole weights of one version, and what is in it."""

    tensors: Mapping[str, Tensor]
    version: int = -1
    checksum: str = ""
    """Of what was sent."""

    def checked(self) -> Mapping[str, Tensor]:
        """The weights. Raises WeightMismatch if they aren't what was sent."""
        found = checksum(self.tensors.items())
        if found != self.checksum:
            raise WeightMismatch(
                f"weights of version {self.version} arrived damaged: checksum {found}, "
                f"published {self.checksum}; start again from the last checkpoint"
            )
        return self.tensors


class ReceivedWeights:
    """Whole weights of a model that pool `source` trains, any version of [i - window, i] in step i.

    The other pool's program makes a `SentWeights` of the same model.
    """

    def __init__(self, run: Run, model: Sampled, *, source: str, window: int) -> None:
        self.run = run
        self.name = model.name
        ranks = [*run.pools.ranks(source), *run.pools.ranks(run.pools.mine)]
        name = f"weights of `{self.name}` to `{run.pools.mine}`"
        self._pull = Pull(
            name,
            lambda: (Wire(name, ranks), []),
            dict(model.shape.tensors()),
            window=window,
            choice=run.versions.of(self.name),
        )
        run.connect(self._pull)
        run.oracle.receives(self)
        recorded = run.versions.rule == "recorded"
        self._recorded = run.versions.renewals(self.name) if recorded else None
        self._calls = self._renewed = 0
        """Of `renew`, in the step at work; and how many chose a version."""

    @property
    def version(self) -> int:
        """Of the weights that `wait` chose; -1 before the first."""
        return self._pull.chosen.version

    @property
    def checksum(self) -> str:
        """Their digest."""
        return self._pull.chosen.checksum

    def wait(self, *, step: int) -> None:
        """Chooses a version for step `step`, the same on all processes of the pool; waits while
        there is none. Collective over this pool.

        Raises what went wrong with receiving.
        """
        self._calls = self._renewed = 0
        with self.run.clock.stage(f"wait_{self.name}", idle=True):
            self._agree(step)
        self.run.log(f"version/{self.name}", self.version)

    def _agree(self, step: int) -> None:
        """A newer version may have come to some processes of the pool only."""
        at_least = 0
        while True:
            found = world.gather(self._pull.choose(step, at_least=at_least))
            at_least = max(found)
            if at_least == min(found):
                return

    def renew(self) -> bool:
        """Chooses a newer version for the step at work, if one is there and RPEG_VERSIONS lets a
        step take the newest; or where the run did whose choices are made again.

        Raises GenerationFailure where several processes sample the same: they would not agree.
        """
        if world.size() != self.run.data_parallel[1]:
            raise GenerationFailure(
                f"samples of `{self.name}` go on with new weights where each process has its own: "
                "lay their pool out with dp only, or write overflow=wait"
            )
        step, share = self.run.step, self.run.data_parallel[0]
        token, self._calls = self._calls, self._calls + 1
        if self._recorded is None:
            renewed = self._pull.renew(step)
        else:
            wanted = self._recorded.get((step, share, token))
            renewed = wanted is not None
            if wanted is not None:
                self._pull.choose_one(step, wanted)
        if renewed:
            self._tell(share, token)
        return renewed

    def _tell(self, share: int, token: int) -> None:
        """Logs a renewal so that it can be made again."""
        self.run.log(f"renewed/{self.name}", 1, how="sum")
        number, self._renewed = self._renewed, self._renewed + 1
        self.run.log(renewal(self.name, share, number, "token"), token, how="max")
        self.run.log(renewal(self.name, share, number, "version"), self.version, how="max")

    def wait_for_last(self) -> None:
        """Chooses the version that the last step made, which no step samples from; waits for it."""
        self._pull.choose_one(self.run.step, self.run.step)

    def keep(self, versions: Set[int]) -> None:
        """Has weights of these versions stay as they are until told otherwise: samples in flight
        read them.
        """
        self._pull.keep(versions)

    def read(self) -> NamedTensors:
        """(Hugging Face name, whole tensor) of the chosen weights; they stay as they are until the
        next choice is read. Raises WeightMismatch if they aren't what was published.
        """
        return iter(self._pull.read().checked().items())


class Pull(Courier):
    """The thread that receives version after version."""

    def __init__(
        self,
        name: str,
        connect: Connect,
        shapes: Mapping[str, Shape],
        *,
        window: int,
        choice: Choice,
    ) -> None:
        self.chosen = Copy({})
        """What the step samples from."""
        self._read = self.chosen
        self._shapes = shapes
        self._device = device()
        self._window, self._choice = window, choice
        self._versions: Versions[Copy] | None = None
        self._copies: list[Copy] = []
        self._kept: Set[int] = frozenset()
        self._over = False
        super().__init__(name, connect)

    def choose(self, step: int, *, at_least: int) -> int:
        """Chooses a version of step `step` that is not older than another; waits while there is
        none. Raises RuntimeFailure if none will come.
        """
        return self._choose(step, None, at_least)

    def choose_one(self, step: int, version: int) -> None:
        """Chooses a version of step `step`; waits until it is there. Raises RuntimeFailure if it
        will not come.
        """
        self._choose(step, version, version)

    def _choose(self, step: int, wanted: int | None, at_least: int) -> int:
        with self._changed:
            self._wait(lambda: self._is_there(step, at_least, wanted) or self._over)
            if not self._is_there(step, at_least, wanted):
                raise RuntimeFailure(f"{self.name}: the other pool's program has ended before")
            assert self._versions is not None, "one is there"
            version, self.chosen = self._versions.take(step, wanted)
            return version

    def renew(self, step: int) -> bool:
        """Chooses a newer version of step `step` than was chosen, if it is there and so wanted."""
        with self._changed:
            self._wait(lambda: True)
            newer = self._choice == "newest" and self._is_there(step, self.chosen.version + 1)
            if newer and self._versions is not None:
                _, self.chosen = self._versions.take(step)
            return newer

    def keep(self, versions: Set[int]) -> None:
        """Copies of these versions are not overwritten."""
        with self._changed:
            self._kept = versions

    def read(self) -> Copy:
        """What was chosen; only now what was read before may be overwritten."""
        with self._changed:
            self._read = self.chosen
            return self._read

    def _is_there(self, step: int, at_least: int, wanted: int | None = None) -> bool:
        versions = self._versions
        if versions is None or versions.held[-1] < at_least:
            return False
        return versions.ready(step, wanted)

    def _work(self, wire: Wire, others: list[int]) -> None:
        link = connect(wire, Share(wants=_whole(self._shapes)), {})
        inbox = Inbox(link)
        while (version := inbox.next_version()) is not None:
            copy = self._room(link)
            copy.checksum = shown(inbox.receive(list(copy.tensors.values())))
            copy.version = version
            self._arrive(copy)
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def _room(self, link: Link) -> Copy:
        """A copy that nobody reads or will choose."""
        with self._changed:
            held = {*self._kept, *(self._versions.held if self._versions else ())}
            for copy in self._copies:
                used = copy is self.chosen or copy is self._read or copy.version in held
                if not used:
                    return copy
        made = Copy(
            {
                name: torch.empty(shape, dtype=link.types[name], device=self._device)
                for name, shape in self._shapes.items()
            }
        )
        self._copies.append(made)
        return made

    def _arrive(self, copy: Copy) -> None:
        with self._changed:
            if self._versions is None:
                window = Window(self._window, first=copy.version)
                self._versions = Versions(window, self._choice)
            self._versions.arrive(copy.version, copy)
            self._changed.notify_all()


def _whole(shapes: Mapping[str, Shape]) -> list[Held]:
    return [Held(name, Box.whole(shape)) for name, shape in shapes.items()]
