"""Whole batches from one pool to another: bounded, in order, with back-pressure."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from rpeg.runtime import world
from rpeg.runtime.errors import LayoutFailure, RuntimeFailure
from rpeg.runtime.lag import LagBound, OldSpans
from rpeg.runtime.pools.admission import Bound
from rpeg.runtime.pools.couriers import Receiver, Sender
from rpeg.runtime.pools.rows import cut, joined, routes
from rpeg.runtime.pools.wire import Wire, pack
from rpeg.runtime.trajectories import Trajectories
from rpeg.sharding.boxes import Transfer

if TYPE_CHECKING:
    from rpeg.runtime.run import Run


class Channel:
    """First in, first out, from pool `source` to pool `target`, whose programs both make it.

    Of the batches that were put and not yet taken there are at most `capacity`: one on its way or
    waiting to leave, the others arrived. Rows go from the shares of one pool to those of the other
    (`rpeg.runtime.pools.rows`). With `max_lag`, trajectories are held to it where they are taken.
    """

    def __init__(
        self,
        run: Run,
        name: str,
        *,
        source: str,
        target: str,
        capacity: int,
        max_lag: int | None = None,
        bound: Bound = "strict",
        old_spans: OldSpans | None = None,
    ) -> None:
        self.run = run
        self.name = name
        self._source, self._target = run.pools.ranks(source), run.pools.ranks(target)
        quiet = not run.pools.at_home
        self._bound = None if max_lag is None else LagBound(max_lag, bound, old_spans, quiet=quiet)
        self._routes: list[Transfer] = []
        self._units = 1
        self._sender: Sender | None = None
        self._receiver: Receiver | None = None
        title = f"channel `{name}`"
        if source == target or run.pools.mine not in (source, target):
            raise LayoutFailure(
                f"{title} goes from pool `{source}` to `{target}`; "
                f"this is the program of `{run.pools.mine}`"
            )
        if run.pools.mine == source:
            self._sender = Sender(title, self._connect, bound=1)
            run.connect(self._sender)
        else:
            self._receiver = Receiver(title, self._connect, capacity=capacity)
            run.connect(self._receiver)

    def _connect(self) -> tuple[Wire, list[int]]:
        wire = Wire(f"channel/{self.name}", [*self._source, *self._target])
        shares = dict(zip(wire.ranks, wire.gather(self.run.data_parallel), strict=True))
        senders = {rank: shares[rank] for rank in self._source}
        takers = {rank: shares[rank] for rank in self._target}
        self._units = takers[self._target[0]][1]
        plan, me = routes(senders, takers), world.process()
        if me in self._source:
            self._routes = [route for route in plan if route.src == me]
            return wire, [route.dst for route in self._routes]
        return wire, [route.src for route in plan if route.dst == me]

    def put(self, *values: Any) -> None:
        """Adds one batch: trajectories, prompts, fields with the rows of the batch in their first
        dimension; numbers are the same for all. Waits while the channel is full.

        Raises LayoutFailure if the rows do not divide among the other pool's shares.
        """
        if self._sender is None:
            raise RuntimeFailure(f"channel `{self.name}`: this pool takes from it, it can't put")
        with self._idle("put"):
            self._sender.others()
        packed = {route.dst: self._packed(values, route) for route in self._routes}
        with self._idle("put"):
            self._sender.put_each(packed)

    def _idle(self, what: str) -> AbstractContextManager[None]:
        return self.run.clock.stage(f"{what}_{self.name}", idle=True)

    def _packed(self, values: tuple[Any, ...], route: Transfer) -> Any:
        return pack((self.run.step, [cut(value, route, self._units) for value in values]))

    def take(self, *, step: int) -> tuple[Any, ...]:
        """The oldest batch, for step `step`; waits while there is none.

        Raises StalenessExceeded if a token of it is older than the bound allows.
        """
        if self._receiver is None:
            raise RuntimeFailure(f"channel `{self.name}`: this pool puts into it, it can't take")
        self.run.log(f"queue/{self.name}", self._receiver.here)
        with self._idle("take"):
            parts = self._receiver.take()
        steps = {made for made, _ in parts}
        if steps != {step}:
            raise RuntimeFailure(
                f"channel `{self.name}`: step {step} took the batch of step {min(steps)}: both "
                "programs must go over the same steps, and put and take once in each"
            )
        values = tuple(joined(fields) for fields in zip(*(v for _, v in parts), strict=True))
        return tuple(self._trained(value, step) for value in values)

    def _trained(self, value: Any, step: int) -> Any:
        """What of a value trains; of other values than trajectories, all."""
        if self._bound is None or not isinstance(value, Trajectories):
            return value
        return self._bound.consumed(self.run, value, step)
