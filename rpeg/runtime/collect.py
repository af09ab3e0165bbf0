"""Dynamic sampling in a run: rounds of sampling until enough groups are kept.

Every process samples its share of each round. Which groups stay is decided from the rewards of all
shares, in the order of rounds and prompts, so that no layout changes the batch: the first of them,
of which each process then takes an equal share, wherever they were sampled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rpeg.runtime import world
from rpeg.runtime.buffer import TrajectoryBuffer
from rpeg.runtime.errors import BufferFailure, DataFailure
from rpeg.runtime.lag import OldSpans
from rpeg.runtime.pools.admission import Bound
from rpeg.runtime.selection import Where, join, kept_groups, samples_of, too_few
from rpeg.runtime.trajectories import Trajectories

if TYPE_CHECKING:
    from rpeg.runtime.run import Run

Fields = tuple[Tensor, ...]
Place = tuple[int, int, int]
"""(round, share, number within both) of a group: they sort in the order of the data."""
SURPLUS = "surplus"
"""Reason of a drop: enough groups were kept before it."""
REASONS = {"mixed": "equal rewards", "nonzero": "no reward"}
"""Reason of a drop, by the condition that failed."""


@dataclass(frozen=True)
class _Round:
    """This process's share of a round: trajectories, rewards and fields."""

    y: Trajectories
    fields: Fields

    def groups(self, chosen: Sequence[int]) -> _Round:
        """Only these of its groups."""
        rows = samples_of(torch.tensor(chosen, dtype=torch.int64), self.y.n)
        return _Round(self.y.select(rows), tuple(field[rows] for field in self.fields))


class Collect:
    """A batch of `groups` groups that are worth training on, from at most `max_rounds` rounds.

    With `max_lag`, batches wait for their step as in a `TrajectoryBuffer`, whose settings `bound`
    and `old_spans` are.
    """

    def __init__(
        self,
        run: Run,
        name: str,
        *,
        groups: int,
        max_rounds: int,
        max_lag: int | None = None,
        bound: Bound = "strict",
        old_spans: OldSpans | None = None,
    ) -> None:
        self.run = run
        self.name = name
        self._groups = groups
        self._max_rounds = max_rounds
        self._rounds: list[_Round] = []
        self._kept: list[Place] = []
        self._batch: _Round | None = None
        self._waiting = (
            TrajectoryBuffer(
                run, name, capacity=max_lag + 1, max_lag=max_lag, bound=bound, old_spans=old_spans
            )
            if max_lag is not None
            else None
        )

    def ahead(self, step: int) -> Iterator[int]:
        """The steps whose batches are to be collected before update `step`: see `TrajectoryBuffer`.
        Only for samples of older weights.
        """
        return self._buffer.ahead(step)

    def take(self, *, step: int) -> None:
        """Takes the oldest batch, as update `step` trains on it: see `TrajectoryBuffer`."""
        y, *fields = self._buffer.take(step=step)
        self._batch = _Round(y, tuple(fields))

    @property
    def _buffer(self) -> TrajectoryBuffer:
        if self._waiting is None:
            raise BufferFailure(f"`{self.name}` keeps no batches: give it max_lag")
        return self._waiting

    def rounds(self) -> Iterator[int]:
        """The rounds of this step, as many as are needed. Collective.

        Raises DataFailure if the last round leaves too few groups.
        """
        self._rounds, self._kept = [], []
        for number in range(self._max_rounds):
            yield number
            if len(self._kept) >= self._groups:
                break
        found = len(self._kept)
        if found < self._groups:
            raise DataFailure(f"`{self.name}`: {too_few(found, self._groups, self._max_rounds)}")
        self._note(self._kept[self._groups :], SURPLUS)
        self.run.log(f"collect/{self.name}/rounds", len(self._rounds))
        batch = self._shared(self._kept[: self._groups])
        if self._waiting is None:
            self._batch = batch
        else:
            self._waiting.put(batch.y, *batch.fields)

    def keep(self, rewards: Tensor, y: Trajectories, *fields: Tensor, where: Where) -> None:
        """Takes a round's groups: of all processes, those for which `where` holds. Collective."""
        number, good = len(self._rounds), kept_groups(rewards, y.n, where)
        self._rounds.append(_Round(y, (rewards, *fields)))
        shares = dict(world.gather((self.run.data_parallel[0], good.tolist())))
        places = [(number, s, k) for s in sorted(shares) for k in range(len(shares[s]))]
        self._kept += [place for place in places if shares[place[1]][place[2]]]
        self._note([p for p in places if not shares[p[1]][p[2]]], REASONS[where])
        self.run.log(f"collect/{self.name}/kept", float(good.double().mean()), len(good))

    def trajectories(self) -> Trajectories:
        """This process's share of the batch."""
        return self._whole().y

    def rewards(self) -> Tensor:
        """[samples] the rewards by which groups were kept."""
        return self._whole().fields[0]

    def token_field(self, *, index: int) -> Tensor:
        """[samples, max_tokens] field number `index` after the trajectories."""
        return self._whole().fields[1 + index]

    def response_field(self, *, index: int) -> Tensor:
        """[samples] field number `index` after the trajectories."""
        return self._whole().fields[1 + index]

    def _whole(self) -> _Round:
        assert self._batch is not None, "a program reads a batch after its rounds"
        return self._batch

    def _note(self, places: Sequence[Place], reason: str) -> None:
        """Enters this process's own dropped groups into the ledger."""
        mine = (p for p in places if p[1] == self.run.data_parallel[0])
        for number, of_round in groupby(mine, key=lambda p: p[0]):
            y = self._rounds[number].groups([p[2] for p in of_round]).y
            self.run.ledger.note_dropped(self.name, reason, y)

    def _shared(self, chosen: Sequence[Place]) -> _Round:
        """This process's share of the chosen groups, sent by those who sampled them."""
        _, width = self.run.data_parallel
        size = len(chosen) // width
        mine = world.exchange(
            [self._sent(chosen[s * size : (s + 1) * size]) for s in self._shares()]
        )
        parts = sorted((part for sent in mine for part in sent), key=lambda part: part[0])
        rounds = [part for _, part in parts]
        fields = zip(*(part.fields for part in rounds), strict=True)
        return _Round(join([part.y for part in rounds]), tuple(map(_stacked, fields)))

    def _shares(self) -> list[int]:
        """Which share each process of the world holds."""
        return world.gather(self.run.data_parallel[0])

    def _sent(self, wanted: Sequence[Place]) -> list[tuple[Place, _Round]]:
        """What this process sends of some groups: those it sampled, if it leads its share."""
        own = [p for p in wanted if p[1] == self.run.data_parallel[0] and self.run.leads_shard]
        by_round = [list(places) for _, places in groupby(own, key=lambda p: p[0])]
        return [(k[0], self._rounds[k[0][0]].groups([p[2] for p in k])) for k in by_round]


def _stacked(parts: Sequence[Tensor]) -> Tensor:
    return torch.cat(list(parts))
