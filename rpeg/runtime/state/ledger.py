"""Which samples trained which model in which step: `ledger.jsonl`, one line per update.

A sample is known by (prompt ordinal, index in its group). In the history that survives, each
(sample, epoch, minibatch) of an update occurs once: the ledger is committed with the checkpoint.
What a kill rolled back stays, marked with the attempt that rolled it back, and is done again.

Fields: `step`, `attempt`, `model`, `epochs`, `minibatches`, `samples` (how many), `ids`, `dropped`
(reason -> ids that took part without effect), and of lines that don't count `rolled_back`. Groups
that a collect did not keep, or that grew too old, have a line before, with its name, or that of
their trajectories, as `collect` and no model. Ids are runs `[first ordinal, last ordinal, n]` of
prompts with the samples 0..n-1; a list stands for n where others than the first are there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rpeg.rundir import jsonl
from rpeg.runtime.publish.digest import odd_numbers
from rpeg.runtime.trajectories import Batch, Pairs, Trajectories, sample_ids

SampleId = tuple[int, int]
Runs = list[list[Any]]

NO_LOSS = "no loss"
"""Reason of a drop: no token has a loss, for example because the whole group has one reward."""


@dataclass(frozen=True)
class Consumed:
    """One process's share of what an update trained on."""

    model: str
    epochs: int
    minibatches: int
    ids: tuple[SampleId, ...]
    digests: tuple[int, ...]
    """Of each sample's tokens."""
    active: tuple[bool, ...]
    """Which samples have a loss."""


@dataclass(frozen=True)
class Dropped:
    """Samples of one process that a collect did not keep, or that grew too old before a batch took
    them: `collect` is the name of either."""

    collect: str
    reason: str
    ids: tuple[SampleId, ...]


def consumed(
    model: str,
    batch: Batch,
    tokens: Tensor,
    mask: Tensor,
    active: Tensor,
    *,
    epochs: int,
    minibatches: int,
) -> Consumed:
    """The entry of an update on `batch`, with completions `tokens` [samples, tokens] where `mask`
    holds; `active` [samples].
    """
    ids = tuple(_ids(batch))
    digests = tuple(_of_samples(tokens.cpu().numpy(), mask.cpu().numpy()))
    return Consumed(model, epochs, minibatches, ids, digests, tuple(active.tolist()))


def _of_samples(tokens: NDArray[np.int64], mask: NDArray[np.bool_]) -> list[int]:
    """The digest of each sample's tokens where the mask holds: one more than each, times an odd
    number of its place, summed modulo 2^64. One changed token always shows; other changes go unseen
    with a probability of about 2^-64.
    """
    counted = ((tokens + 1) * mask).view(np.uint64)
    digests: list[int] = (counted @ odd_numbers(tokens.shape[1])).tolist()
    return digests


def _ids(batch: Batch) -> Iterable[SampleId]:
    """A demonstration is the only sample of its prompt; of a pair, the chosen response is the
    first.
    """
    if isinstance(batch, Trajectories):
        return sample_ids(batch)
    each = 2 if isinstance(batch, Pairs) else 1
    return ((ordinal, k % each) for k, ordinal in enumerate(batch.ordinals.tolist()))


class Ledger:
    """The ledger of a run. Every process notes its share; process 0 writes."""

    def __init__(self, path: Path, append: jsonl.Append = jsonl.append_text) -> None:
        self.path = path
        self._append = append
        self._step: list[Consumed] = []
        self._dropped: list[Dropped] = []
        self._committed: list[jsonl.Object] = []

    def note(self, entry: Consumed) -> None:
        """Adds an update to the step at work."""
        self._step.append(entry)

    def note_dropped(self, collect: str, reason: str, y: Trajectories) -> None:
        """Adds samples that a collect did not keep to the step at work."""
        self.note_lost(collect, reason, sample_ids(y))

    def note_lost(self, name: str, reason: str, ids: Iterable[SampleId]) -> None:
        """Adds samples that nothing will train on to the step at work."""
        self._dropped.append(Dropped(name, reason, tuple(ids)))

    def take_dropped(self) -> list[Dropped]:
        """What this process's collects dropped in the step at work, which ends."""
        taken, self._dropped = self._dropped, []
        return taken

    def take(self) -> list[Consumed]:
        """This process's updates of the step at work, which ends."""
        taken, self._step = self._step, []
        return taken

    def write(
        self,
        step: int,
        attempt: int,
        shares: Sequence[Sequence[Consumed]],
        dropped: Sequence[Dropped] = (),
        away: Sequence[Sequence[Sequence[Consumed]]] = (),
    ) -> None:
        """Adds the lines of a step: what its collects dropped, and of each data-parallel share its
        updates in order; `away`: the same of other pools.
        """
        updates = [_line(parts) for pool in (shares, *away) for parts in zip(*pool, strict=True)]
        lines = [*_dropped_lines(dropped), *updates]
        if lines:
            numbered = ({"step": step, "attempt": attempt, **line} for line in lines)
            self._append(self.path, jsonl.lines(numbered))

    def rewind(self, step: int, attempt: int) -> None:
        """Marks what was done past `step`; what the checkpoint says counts before it."""
        done = jsonl.read(self.path)
        undone = [line for line in done if "rolled_back" in line]
        late = [line for line in done if "rolled_back" not in line and line["step"] > step]
        undone += [line | {"rolled_back": attempt} for line in late]
        if done or self._committed:
            lines = sorted(self._committed + undone, key=lambda x: (x["step"], x["attempt"]))
            jsonl.rewrite(self.path, lines)

    def state_dict(self) -> dict[str, Any]:
        """The history so far."""
        return {"lines": committed(self.path)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes a checkpoint's history for the one that counts, for `rewind` to write."""
        self._committed = state["lines"]


def committed(path: Path) -> list[jsonl.Object]:
    """The lines of a ledger that count: nothing that was rolled back."""
    return [line for line in jsonl.read(path) if "rolled_back" not in line]


def expand(ids: Runs) -> Iterator[SampleId]:
    """The sample ids that a ledger's line means."""
    for first, last, samples in ids:
        for ordinal in range(first, last + 1):
            for sample in range(samples) if isinstance(samples, int) else samples:
                yield ordinal, sample


def samples_digest(shares: Sequence[Sequence[Consumed]]) -> str | None:
    """Digest of the identities and tokens that a step trained on, however they were spread over
    processes; None if it trained on nothing.
    """
    updates = (update for share in shares for update in share)
    # Once each, in their order: most are sorted by now, which makes sorting them cheap.
    once = dict.fromkeys(pair for u in updates for pair in zip(u.ids, u.digests, strict=True))
    pairs = sorted(once)
    if not pairs:
        return None
    identities = np.fromiter(chain.from_iterable(i for i, _ in pairs), dtype=np.int64)
    contents = np.array([content for _, content in pairs], dtype=np.uint64)
    return hashlib.blake2b(identities.tobytes() + contents.tobytes(), digest_size=16).hexdigest()


def _line(parts: Sequence[Consumed]) -> Mapping[str, Any]:
    """One update, from the shares of all processes."""
    ids = [i for part in parts for i in part.ids]
    active = [flag for part in parts for flag in part.active]
    idle = [i for i, flag in zip(ids, active, strict=True) if not flag]
    return {
        "model": parts[0].model,
        "epochs": parts[0].epochs,
        "minibatches": parts[0].minibatches,
        "samples": len(ids),
        "ids": _runs(ids),
        "dropped": {NO_LOSS: _runs(idle)} if idle else {},
    }


def _dropped_lines(dropped: Sequence[Dropped]) -> Iterator[Mapping[str, Any]]:
    """One line for each collect that dropped something."""
    for name in dict.fromkeys(d.collect for d in dropped):
        by_reason: dict[str, list[SampleId]] = {}
        for entry in dropped:
            if entry.collect == name:
                by_reason.setdefault(entry.reason, []).extend(entry.ids)
        runs = {reason: _runs(ids) for reason, ids in sorted(by_reason.items())}
        yield {"collect": name, "samples": sum(map(len, by_reason.values())), "dropped": runs}


def _runs(ids: Iterable[SampleId]) -> Runs:
    runs: Runs = []
    for ordinal, group in groupby(sorted(ids), key=lambda i: i[0]):
        listed = [sample for _, sample in group]
        samples = len(listed) if listed == list(range(len(listed))) else listed
        if runs and runs[-1][1:] == [ordinal - 1, samples]:
            runs[-1][1] = ordinal
        else:
            runs.append([ordinal, ordinal, samples])
    return runs
