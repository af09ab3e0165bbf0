"""What a model is trained on or evaluated at: prompts with completions, padded into rectangles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rpeg.runtime.errors import DataFailure, ModelFailure
from rpeg.runtime.tokenizer import Tokenizer
from rpeg.runtime.trajectories import Demos, Row, Trajectories


@dataclass(frozen=True)
class ModelInputs:
    """One micro-batch. A row is prompt and completion, right-padded: causal attention needs no
    mask.
    """

    input_ids: Tensor
    """[batch, sequence] int64."""
    positions: Tensor
    """[batch, tokens] int64: where in the sequence each completion token is predicted."""
    targets: Tensor
    """[batch, tokens] int64: the completion tokens."""
    mask: Tensor
    """[batch, tokens] bool: which of them count."""

    def to(self, device: torch.device) -> ModelInputs:
        """The same on another device."""
        return ModelInputs(
            self.input_ids.to(device),
            self.positions.to(device),
            self.targets.to(device),
            self.mask.to(device),
        )


@dataclass(frozen=True)
class Examples:
    """Completions and their prompts, whatever they came from."""

    prompt_ids: tuple[tuple[int, ...], ...]
    tokens: Tensor
    """[samples, tokens] int64."""
    mask: Tensor
    """[samples, tokens] bool."""
    temperature: float
    """The temperature at which log-probs are taken, > 0."""

    @staticmethod
    def of(batch: Trajectories | Demos, tokenizer: Tokenizer) -> Examples:
        """The examples of trajectories, or of demonstrations, which are tokenized here.

        Raises DataFailure for a prompt without tokens or a demonstration without completion.
        """
        if isinstance(batch, Trajectories):
            # Greedy samples have no temperature to divide by: their log-probs are the model's own.
            temperature = batch.temperature or 1.0
            return Examples(batch.prompt_ids, batch.tokens, batch.mask, temperature)
        prompts = tuple(tokenizer.encode_prompt(row) for row in batch.rows)
        completions = [_completion(row, tokenizer) for row in batch.rows]
        tokens, mask = pad(completions)
        return Examples(prompts, tokens, mask, temperature=1.0)

    def __len__(self) -> int:
        return len(self.prompt_ids)

    @property
    def extents(self) -> Tensor:
        """[samples] int64: completion tokens up to the last one that counts, at least 1."""
        places = torch.arange(1, self.mask.shape[1] + 1)
        return (self.mask * places).amax(dim=1).clamp(min=1)

    @property
    def lengths(self) -> Tensor:
        """[samples] int64: model inputs of each row; the last token is predicted, never read."""
        prompts = torch.tensor([len(ids) for ids in self.prompt_ids])
        return prompts + self.extents - 1

    def inputs(self, rows: Sequence[int], multiple: int = 1) -> ModelInputs:
        """The rectangle of `rows`, its sequence length rounded up to a multiple."""
        index = torch.tensor(rows)
        width = int(self.extents[index].max())
        longest = int(self.lengths[index].max())
        longest = -(-longest // multiple) * multiple
        targets = self.tokens[index, :width]
        prompts = [self.prompt_ids[row] for row in rows]
        starts = torch.tensor([len(ids) for ids in prompts])
        positions = starts.unsqueeze(1) - 1 + torch.arange(width)
        input_ids = torch.zeros(
            len(rows), max(longest, width + int(starts.max())), dtype=torch.long
        )
        for row, ids in enumerate(prompts):
            input_ids[row, : len(ids)] = torch.tensor(ids)
        input_ids.scatter_(1, positions + 1, targets)
        return ModelInputs(
            input_ids=input_ids[:, :longest],
            positions=positions.clamp(max=longest - 1),
            targets=targets,
            mask=self.mask[index, :width],
        )


def pad(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """(ids, mask), both [rows, longest], right-padded with zeros."""
    width = max((len(row) for row in rows), default=0)
    ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], dtype=torch.long)
    lengths = torch.tensor([len(row) for row in rows])
    return ids, torch.arange(width) < lengths.unsqueeze(1)


def _completion(row: Row, tokenizer: Tokenizer) -> tuple[int, ...]:
    if row.completion is None:
        raise DataFailure(f"{row.place}: a demonstration needs a `completion`")
    try:
        return tokenizer.encode_completion(row.completion)
    except ModelFailure as error:
        raise DataFailure(f"{row.place}: {error}") from error
