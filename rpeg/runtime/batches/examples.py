"""What a model is trained on or evaluated at: prompts with completions, packed end to end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from rpeg.runtime.batches.packing import Ints, Packing
from rpeg.runtime.errors import DataFailure, ModelFailure
from rpeg.runtime.models.tokenizer import Tokenizer
from rpeg.runtime.trajectories import Batch, Pairs, Row, Trajectories


@dataclass(frozen=True)
class ModelInputs:
    """One micro-batch: rows of prompt and completion, packed end to end."""

    input_ids: Tensor
    """[1, tokens] int64."""
    packing: Packing
    """Which of the tokens are each row's."""
    predicting: Tensor
    """[k] int64: the tokens after which completion tokens come, row by row."""
    targets: Tensor
    """[k] int64: those completion tokens."""
    cells: Tensor
    """[k] int64: their places in a rectangle [batch, tokens], flattened."""
    mask: Tensor
    """[batch, tokens] bool: which of the rectangle's tokens count."""

    def to(self, device: torch.device) -> ModelInputs:
        """The same on another device."""
        return ModelInputs(
            **{part.name: getattr(self, part.name).to(device) for part in fields(self)}
        )

    def rectangle(self, values: Tensor) -> Tensor:
        """values [k] as [batch, tokens], zero where there are none and outside the mask."""
        cells = values.new_zeros(self.mask.numel()).index_copy(0, self.cells, values)
        return cells.view(self.mask.shape) * self.mask


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
    together: int = 1
    """How many adjacent rows one loss reads: 2 for pairs. No split separates them."""
    lead: int = 0
    """Places before that of the first token: 1 for a model that answers behind tokens."""

    @staticmethod
    def of(batch: Batch, tokenizer: Tokenizer) -> Examples:
        """The examples of trajectories, or of demonstrations and pairs, which are tokenized here.

        Raises DataFailure for a prompt without tokens or a demonstration without completion.
        """
        if isinstance(batch, Trajectories):
            # Greedy samples have no temperature to divide by: their log-probs are the model's own.
            temperature = batch.temperature or 1.0
            return Examples(batch.prompt_ids, batch.tokens, batch.mask, temperature)
        prompts = tuple(tokenizer.encode_prompt(row) for row in batch.rows)
        completions = [_completion(row, tokenizer) for row in batch.rows]
        tokens, mask = pad(completions)
        together = 2 if isinstance(batch, Pairs) else 1
        return Examples(prompts, tokens, mask, temperature=1.0, together=together)

    def __len__(self) -> int:
        return len(self.prompt_ids)

    def behind(self, *, whole: bool) -> Examples:
        """The same, for a model that answers behind tokens rather than before them.

        Places are counted from the token that they are behind: that of a response's first token is
        1. Of a whole response, only the place behind its last token counts.
        """
        mask = torch.nn.functional.pad(self.mask, (1, 0))
        if whole:
            mask = torch.arange(mask.shape[1]) == self.extents.unsqueeze(1)
        tokens = torch.nn.functional.pad(self.tokens, (0, 1))
        return replace(self, tokens=tokens, mask=mask, lead=1)

    @property
    def idle(self) -> list[int]:
        """The rows that a micro-batch without rows of its own is run with."""
        return list(range(self.together))

    @cached_property
    def extents(self) -> Tensor:
        """[samples] int64: completion tokens up to the last one that counts, at least 1."""
        places = torch.arange(1, self.mask.shape[1] + 1)
        return (self.mask * places).amax(dim=1).clamp(min=1)

    @cached_property
    def lengths(self) -> Tensor:
        """[samples] int64: model inputs of each row; the last token is predicted, never read."""
        return self._prompt_lengths + self.extents - 1

    @cached_property
    def _prompt_lengths(self) -> Tensor:
        return torch.tensor([len(ids) for ids in self.prompt_ids])

    def inputs(self, rows: Sequence[int], multiple: int = 1) -> ModelInputs:
        """`rows`, packed, equal prompts once; zeros follow the last up to a multiple of tokens."""
        index = np.array(rows)
        extents, prompts = self.extents.numpy()[index], self._prompt_lengths.numpy()[index]
        places = np.arange(extents.max())
        completions = self.tokens.numpy()[index, : len(places)]
        ids, begins = self._packed(rows, completions, extents, prompts)
        padding = -len(ids) % multiple
        sizes = prompts + extents - 1
        sizes[-1] += padding
        sequences = _sequences(*begins, prompts, sizes.max())
        before = np.minimum(prompts[:, None] - 1 + places, sequences.shape[1] - 1)
        wanted = places < extents[:, None]
        return ModelInputs(
            input_ids=torch.from_numpy(np.pad(ids, (0, padding))[None]),
            packing=Packing.of(sequences, sizes),
            predicting=torch.from_numpy(np.take_along_axis(sequences, before, axis=1)[wanted]),
            targets=torch.from_numpy(completions[wanted]),
            cells=torch.from_numpy(wanted.ravel().nonzero()[0]),
            mask=torch.from_numpy(self.mask.numpy()[index, : len(places)]),
        )

    def _packed(
        self, rows: Sequence[int], completions: Ints, extents: Ints, prompts: Ints
    ) -> tuple[Ints, tuple[Ints, Ints]]:
        """(The tokens that the model reads, (where in them each row's prompt and completion begin,
        both [rows])), of completions [rows, width].

        A row's last token is predicted, never read.
        """
        first: dict[tuple[int, ...], int] = {}
        owners = np.array([first.setdefault(self.prompt_ids[r], k) for k, r in enumerate(rows)])
        read = extents - 1
        own = prompts * (owners == np.arange(len(rows)))
        ends = (own + read).cumsum()
        completion = ends - read
        places = np.arange(completions.shape[1])
        kept = places < read[:, None]
        of_completions = (completion[:, None] + places)[kept]
        of_prompts = np.ones(ends[-1], dtype=bool)
        of_prompts[of_completions] = False
        ids = np.empty(ends[-1], dtype=np.int64)
        ids[of_prompts] = [i for prompt in first for i in prompt]
        ids[of_completions] = completions[kept]
        return ids, ((completion - prompts)[owners], completion)


def _sequences(prompt: Ints, completion: Ints, sizes: Ints, longest: int) -> Ints:
    """[rows, longest] the places of a prompt's tokens and then a completion's, from where these
    begin [rows]; `sizes` [rows] are those of the prompts.
    """
    within = np.arange(longest)
    prompt, completion, sizes = (each[:, None] for each in (prompt, completion, sizes))
    return np.where(within < sizes, prompt + within, completion + within - sizes)


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
