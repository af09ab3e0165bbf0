"""Data sets as a program uses them: shares of shuffled batches, and a cursor that checkpoints keep.

A row's place is a function of its ordinal alone: ordinal `o` of a data set with `N` rows is row
`permutation(data seed, op seed, epoch = o // N)[o % N]`. Nothing depends on rank or batch size, so
another data-parallel width sees the same batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from rpeg.rundir.rows import PAIR, Kind, check
from rpeg.runtime.errors import CheckpointFailure, DataFailure, LayoutFailure
from rpeg.runtime.sources import open_rows
from rpeg.runtime.trajectories import Demos, Pairs, Prompts, Row

if TYPE_CHECKING:
    from rpeg.runtime.interfaces import Host

_SEED_BITS = (1 << 64) - 1


class _Data:
    """What prompts, demonstrations and pairs have in common: rows, order, cursor."""

    KIND: ClassVar[Kind]

    def __init__(
        self,
        run: Host,
        name: str,
        *,
        source: str,
        seed: int = 0,
        limit: int | None = None,
        split: str | None = None,
    ) -> None:
        self.name = name
        self.run = run
        self._rows = open_rows(run, source, split=split, limit=limit, seed=seed)
        self._seed = seed
        self._cursor = 0
        self._check_rows()
        run.attach(name, self)

    def __len__(self) -> int:
        """Rows of the data set."""
        return len(self._rows)

    def _check_rows(self) -> None:
        """Raises DataFailure for the first row that lacks something."""
        for k in range(len(self)) if self.KIND != "prompts" else ():
            row = self._rows[k]
            rest = row.metadata or {}
            check(self.KIND, self.name, completion=row.completion, rest=rest, place=row.place)

    def _next(self, size: int, order: str, seed: int) -> tuple[tuple[Row, ...], torch.Tensor]:
        index, width = self.run.data_parallel
        if size > len(self):
            raise DataFailure(
                f"a batch of {size} rows is larger than `{self.name}`, which has {len(self)}: "
                "lower the batch's size, or add rows"
            )
        if size % width:
            raise LayoutFailure(
                f"a batch of {size} rows of `{self.name}` does not divide among {width} "
                f"data-parallel shares; use a multiple of {width}, or another `dp`"
            )
        share = size // width
        first = self._cursor + index * share
        self._cursor += size
        ordinals = range(first, first + share)
        rows = tuple(self._row(o, order, seed) for o in ordinals)
        return rows, torch.tensor(ordinals, dtype=torch.int64)

    def _row(self, ordinal: int, order: str, seed: int) -> Row:
        epoch, place = divmod(ordinal, len(self._rows))
        if order == "sequential":
            return self._rows[place]
        return self._rows[int(permutation(len(self._rows), self._seed, seed, epoch)[place])]

    def _share_of_all(self, limit: int | None) -> tuple[list[int], int]:
        """(row indices, how many count): shares are equally long, the last filled by repeats."""
        index, width = self.run.data_parallel
        total = len(self) if limit is None else min(limit, len(self))
        share = -(-total // width)
        wanted = range(index * share, (index + 1) * share)
        return [i % total for i in wanted], max(0, min(share, total - index * share))

    def state_dict(self) -> dict[str, Any]:
        """The cursor, and what the rows were."""
        return {"cursor": self._cursor, "rows": len(self), "fingerprint": self._rows.fingerprint}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Puts the cursor back. Raises CheckpointFailure if the rows have changed since."""
        now = self.state_dict()
        if (now["rows"], now["fingerprint"]) != (state["rows"], state["fingerprint"]):
            raise CheckpointFailure(
                f"the rows of `{self.name}` changed since the checkpoint ({state['rows']} then, "
                f"{now['rows']} now): put the old file back, or set RPEG_RUN_DIR to a new folder"
            )
        self._cursor = state["cursor"]


class PromptData(_Data):
    """Prompts to generate from."""

    KIND = "prompts"

    def batch(self, *, size: int, order: str = "shuffle", seed: int = 0) -> Prompts:
        """This process's share of the next `size` prompts of the world.

        Raises LayoutFailure if `size` does not divide by the data-parallel width, DataFailure if it
        is more than the rows.
        """
        return Prompts(*self._next(size, order, seed))

    def all(self, limit: int | None) -> tuple[Prompts, int]:
        """This process's share of the first `limit` rows, and how many of them are not repeats.

        Ordinals are row numbers; every process's share has the same length.
        """
        indices, count = self._share_of_all(limit)
        return Prompts(tuple(self._rows[i] for i in indices), torch.tensor(indices)), count


class DemoData(_Data):
    """Demonstrations to imitate. Raises DataFailure if a row has no completion."""

    KIND = "demos"

    def batch(self, *, size: int, order: str = "shuffle", seed: int = 0) -> Demos:
        """This process's share of the next `size` demonstrations of the world, as in PromptData."""
        return Demos(*self._next(size, order, seed))

    def all(self, limit: int | None) -> tuple[Demos, int]:
        """As `PromptData.all`."""
        indices, count = self._share_of_all(limit)
        return Demos(tuple(self._rows[i] for i in indices), torch.tensor(indices)), count


class PairData(_Data):
    """Preferences: prompts with a `chosen` and a `rejected` response, both texts.

    Raises DataFailure if a row lacks one of them.
    """

    KIND = "pairs"

    def batch(self, *, size: int, order: str = "shuffle", seed: int = 0) -> Pairs:
        """This process's share of the next `size` pairs of the world, as in PromptData."""
        return self._pairs(*self._next(size, order, seed))

    def all(self, limit: int | None) -> tuple[Pairs, int]:
        """As `PromptData.all`; how many pairs count."""
        indices, count = self._share_of_all(limit)
        return self._pairs([self._rows[i] for i in indices], torch.tensor(indices)), count

    def _pairs(self, rows: Sequence[Row], ordinals: torch.Tensor) -> Pairs:
        both = (
            replace(row, completion=str((row.metadata or {})[name]))
            for row in rows
            for name in PAIR
        )
        return Pairs(tuple(both), ordinals.repeat_interleave(2))


@lru_cache(maxsize=8)
def permutation(rows: int, data_seed: int, op_seed: int, epoch: int) -> NDArray[np.int64]:
    """The order of an epoch: [rows], a function of its coordinates."""
    coordinates = (data_seed & _SEED_BITS, op_seed & _SEED_BITS, epoch)
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(coordinates))).permutation(
        rows
    )
