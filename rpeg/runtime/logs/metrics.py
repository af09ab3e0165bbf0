"""What a step reports: values added by any process, one JSON object per step in `metrics.jsonl`.

A process adds to a name any number of times; at the end of the step the values are merged over the
world: `mean` weighs by what the value counts (tokens, samples), `max` and `min` take an extreme,
`sum` adds the data-parallel shards, each once, however many processes hold the same rows. Several
pools' values are merged the same way.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rpeg.rundir import jsonl
from rpeg.runtime import world

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

TRAINED = re.compile(r"(?:(?!(?:reward|eval|state|time)/)[^/]+/)?(?:loss|accuracy)")
"""Names of what is trained for: `loss`, and what critics, reward models and preference losses
report, such as `rm/accuracy`.
"""
How = Literal["mean", "max", "min", "sum"]
_JOIN: Mapping[How, Callable[[float, float], float]] = {
    "mean": add,
    "max": max,
    "min": min,
    "sum": add,
}
Line = dict[str, float | str | None]
"""One step: name -> value; None stands for a value that is not finite, as a mean over
nothing is; texts are digests."""


@dataclass(frozen=True)
class Entry:
    """Everything that was added to one name."""

    how: How
    value: float
    """Of a mean: the weighted sum."""
    weight: float
    shard: int | None = None
    """Which data-parallel shard of a model it belongs to, where that has others than the batch."""

    def joined(self, other: Entry) -> Entry:
        """The sum, or the extreme, of both."""
        value = _JOIN[self.how](self.value, other.value)
        return Entry(self.how, value, self.weight + other.weight, self.shard)

    @property
    def figure(self) -> float:
        """What the step's line says."""
        if self.how == "mean":
            return self.value / self.weight if self.weight else math.nan
        return self.value


class StepMetrics:
    """The values of the current step."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}

    def add(
        self,
        name: str,
        value: float,
        weight: float = 1.0,
        how: How = "mean",
        shard: int | None = None,
    ) -> None:
        """Adds a value; `weight` (samples, tokens) counts for means only."""
        entry = Entry(how, value * weight if how == "mean" else value, weight, shard)
        known = self._entries.get(name)
        self._entries[name] = entry if known is None else known.joined(entry)

    def merge(self, shard: int = 0) -> dict[str, float]:
        """The step's values over all processes of the world; forgets them. Collective."""
        return figures([self.collect(shard)])

    def collect(self, shard: int = 0) -> dict[str, Entry]:
        """The step's entries over all processes of the world; forgets them. Collective.

        `shard` is this process's data-parallel index: processes of one shard hold the same rows.
        """
        mine, self._entries = self._entries, {}
        parts = world.gather((shard, mine))
        names = dict.fromkeys(name for _, entries in parts for name in entries)
        return {name: _merged([(s, e[name]) for s, e in parts if name in e]) for name in names}


def figures(pools: Sequence[Mapping[str, Entry]]) -> dict[str, float]:
    """A step's values, from the entries of each pool, in the order of a line."""
    names = sorted(dict.fromkeys(name for entries in pools for name in entries), key=_place)
    return {
        name: reduce(Entry.joined, [e[name] for e in pools if name in e]).figure for name in names
    }


_ORDER = ("reward/", "eval/", "loss", "", "verifier/", "time/")


def _place(name: str) -> int:
    """Order of a line's names; those of one place stay as they were first logged."""
    prefixes = [prefix for prefix in _ORDER if prefix and name.startswith(prefix)]
    return _ORDER.index(prefixes[0] if prefixes else "")


def _merged(entries: list[tuple[int, Entry]]) -> Entry:
    """One entry of those of several processes; of a sum, each shard's counts once."""
    if entries[0][1].how != "sum":
        return reduce(Entry.joined, [entry for _, entry in entries])
    shards: defaultdict[int, list[float]] = defaultdict(list)
    for shard, entry in entries:
        shards[shard if entry.shard is None else entry.shard].append(entry.value)
    return Entry("sum", sum(sum(values) / len(values) for values in shards.values()), 1.0)


_NONE: Mapping[str, str] = {}


class MetricsFile:
    """`metrics.jsonl`: appended to by process 0, one object per step."""

    def __init__(self, path: Path, append: jsonl.Append = jsonl.append_text) -> None:
        self.path = path
        self._append = append

    def append(self, line: Mapping[str, float], digests: Mapping[str, str] = _NONE) -> None:
        """Writes one step's line: figures, then digests."""
        clean = {name: _finite(value) for name, value in line.items()}
        self._append(self.path, jsonl.lines([{**clean, **digests}]))

    def drop_after(self, step: int) -> None:
        """Forgets the lines past `step`: a resumed run writes them again."""
        jsonl.keep(self.path, lambda line: bool(line["step"] <= step))


def read_metrics(path: Path) -> list[Line]:
    """The lines of a `metrics.jsonl`, oldest first; a last line cut short by a kill is left out."""
    return jsonl.read(path)


def main_reward(line: Iterable[str]) -> str | None:
    """Of a line's names, that of the reward that the step trains on: the last one reported."""
    names = [name for name in line if name.startswith("reward/")]
    return names[-1] if names else None


def named(line: Mapping[str, float | None], prefix: str) -> Iterable[tuple[str, float]]:
    """(name without the prefix, value) of the finite values under `prefix`, for example `eval/`."""
    for name, value in line.items():
        if name.startswith(prefix) and value is not None:
            yield name.removeprefix(prefix), value


def _finite(value: float) -> float | int | None:
    if not math.isfinite(value):
        return None
    return value if isinstance(value, int) else round(value, 9)


class TensorBoardLog:
    """The same values as TensorBoard scalars, where TensorBoard is installed."""

    def __init__(self, folder: Path, step: int) -> None:
        self._writer = _summary_writer(folder, step)

    def append(self, line: Mapping[str, float]) -> None:
        """Writes one step's scalars, as one event: one each would cost as much as all else that is
        written.
        """
        if self._writer is None:
            return
        from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[import-untyped]

        scalars = [Summary.Value(tag=n, simple_value=v) for n, v in line.items() if n != "step"]
        writer = self._writer._get_file_writer()
        writer.add_summary(Summary(value=scalars), int(line["step"]))

    def close(self) -> None:
        """Writes what is still in memory."""
        if self._writer is not None:
            self._writer.close()


def _summary_writer(folder: Path, step: int) -> SummaryWriter | None:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(log_dir=str(folder), purge_step=step + 1)
