"""What flows between the stages of one step: prompts, demonstrations, pairs and trajectories.

Every process holds its own share: with data-parallel width d, process r holds rows
[r*B/d, (r+1)*B/d) of the global batch, whole groups only. Fields of a batch are plain tensors
beside it: per-token fields have shape [samples, max_tokens], per-response fields [samples], both in
the order of the trajectories.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class Row:
    """One row of a data set."""

    prompt: str
    answer: str | None = None
    """The expected answer (verifiers read it), or None."""
    completion: str | None = None
    """The demonstration, for supervised rows only."""
    metadata: dict[str, object] | None = None
    """Whatever else the row holds; handed to reward functions unchanged."""
    place: str = field(default="a prompt", compare=False)
    """Where it is written, for messages: `rows.jsonl:12`."""


@dataclass(frozen=True)
class Prompts:
    """This process's share of a batch of prompts."""

    rows: tuple[Row, ...]
    ordinals: Tensor
    """[rows] int64: how many prompts the data set gave before each one, counting on over epochs."""


@dataclass(frozen=True)
class Demos:
    """This process's share of a batch of demonstrations."""

    rows: tuple[Row, ...]
    ordinals: Tensor
    """[rows] int64, as in `Prompts`."""


@dataclass(frozen=True)
class Pairs:
    """This process's share of a batch of preferences: two demonstrations a pair."""

    rows: tuple[Row, ...]
    """[2 pairs]: row 2k has the chosen completion of pair k, row 2k + 1 the rejected one."""
    ordinals: Tensor
    """[2 pairs] int64, as in `Prompts`: both rows of a pair have one."""


@dataclass(frozen=True)
class Trajectories:
    """Sampled completions of prompts, n for each, the samples of one prompt side by side."""

    rows: tuple[Row, ...]
    """The prompt of each sample: len(rows) == samples."""
    prompt_ids: tuple[tuple[int, ...], ...]
    """Token ids of each sample's prompt."""
    tokens: Tensor
    """[samples, max_tokens] int64: sampled ids, the stop token included; zero past the end."""
    mask: Tensor
    """[samples, max_tokens] bool: which positions train: all that were sampled but too old ones."""
    versions: Tensor
    """[samples, max_tokens] int32: the weights version of each sampled token; -1 elsewhere."""
    finished: Tensor
    """[samples] bool: the completion ended with a stop token rather than at max_tokens."""
    ordinals: Tensor
    """[samples] int64: prompt ordinal of each sample."""
    samples: Tensor
    """[samples] int64: index within the group, 0..n-1."""
    texts: tuple[str, ...]
    """Decoded completions, without the stop token."""
    n: int
    """Group size."""
    temperature: float
    """The sampling temperature; log-probs of these trajectories are taken at it."""

    @property
    def trained_lengths(self) -> Tensor:
        """[samples] int64: tokens of each completion that train, which averages count."""
        return self.mask.sum(dim=1)

    @property
    def sampled_lengths(self) -> Tensor:
        """[samples] int64: tokens of each completion that were sampled, also those that are too old
        to train: what rewards, and people, call its length.
        """
        return self.sampled.sum(dim=1)

    @property
    def sampled(self) -> Tensor:
        """[samples, max_tokens] bool: which positions were sampled."""
        return self.versions >= 0

    @property
    def token_count(self) -> int:
        """Tokens of this process's share that train."""
        return int(self.mask.sum())

    def select(self, index: Tensor) -> Trajectories:
        """The samples at `index` ([k] int64), in that order."""
        where = [int(i) for i in index]
        return Trajectories(
            rows=tuple(self.rows[i] for i in where),
            prompt_ids=tuple(self.prompt_ids[i] for i in where),
            tokens=self.tokens[index],
            mask=self.mask[index],
            versions=self.versions[index],
            finished=self.finished[index],
            ordinals=self.ordinals[index],
            samples=self.samples[index],
            texts=tuple(self.texts[i] for i in where),
            n=self.n,
            temperature=self.temperature,
        )


Batch = Trajectories | Demos | Pairs
"""What a model is trained on."""


def sample_ids(y: Trajectories) -> list[tuple[int, int]]:
    """(prompt ordinal, sample index) of each sample: its identity everywhere, never a uuid."""
    return list(zip(y.ordinals.tolist(), y.samples.tolist(), strict=True))
