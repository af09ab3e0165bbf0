"""Prompts with their completions in one rectangle, as a model reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rpeg.runtime.models.tokenizer import Tokenizer
from rpeg.runtime.trajectories import Batch, Demos, Pairs, Trajectories


@dataclass(frozen=True)
class Rectangle:
    """Rows of prompt, completion and zeros: attention is causal, so that padding is never seen."""

    ids: Tensor
    """[rows, length] int64."""
    starts: Tensor
    """[rows] int64: tokens of each prompt."""
    tokens: Tensor
    """[rows, tokens] int64: the completions."""
    mask: Tensor
    """[rows, tokens] bool: which of their tokens count."""
    temperature: float
    """At which log-probs are taken."""
    together: int = 1
    """How many rows, side by side, one loss reads: 2 of pairs."""

    @staticmethod
    def of(batch: Batch, tokenizer: Tokenizer) -> Rectangle:
        """The rectangle of trajectories, or of demonstrations or pairs, which are tokenized
        here.
        """
        if not isinstance(batch, Trajectories):
            together = 2 if isinstance(batch, Pairs) else 1
            return replace(_of_demos(batch, tokenizer), together=together)
        # Greedy samples have no temperature to divide by: their log-probs are the model's own.
        temperature = batch.temperature or 1.0
        return _join(batch.prompt_ids, batch.tokens, batch.mask, temperature)

    def select(self, rows: Tensor) -> Rectangle:
        """The given rows [k], in that order."""
        return Rectangle(
            self.ids[rows],
            self.starts[rows],
            self.tokens[rows],
            self.mask[rows],
            self.temperature,
        )

    def predicting(self, outputs: Tensor) -> Tensor:
        """[rows, tokens, ...]: `outputs` [rows, length, ...] where completion tokens are chosen."""
        places = self.starts.unsqueeze(1) - 1 + torch.arange(self.tokens.shape[1])
        return outputs[torch.arange(len(self.ids)).unsqueeze(1), places]

    def reading(self, outputs: Tensor) -> Tensor:
        """[rows, tokens, ...]: `outputs` [rows, length, ...] where completion tokens are read."""
        places = self.starts.unsqueeze(1) + torch.arange(self.tokens.shape[1])
        return outputs[torch.arange(len(self.ids)).unsqueeze(1), places]


def _of_demos(batch: Demos | Pairs, tokenizer: Tokenizer) -> Rectangle:
    prompts = [tokenizer.encode(row.prompt) for row in batch.rows]
    completions = [tokenizer.encode_completion(row.completion or "") for row in batch.rows]
    lengths = torch.tensor([len(ids) for ids in completions])
    width = int(lengths.max())
    tokens = torch.tensor([[*ids, *[0] * (width - len(ids))] for ids in completions])
    return _join(prompts, tokens, torch.arange(width) < lengths.unsqueeze(1), temperature=1.0)


def _join(
    prompts: Sequence[tuple[int, ...]], tokens: Tensor, mask: Tensor, temperature: float
) -> Rectangle:
    starts = torch.tensor([len(prompt) for prompt in prompts])
    ids = torch.zeros(len(prompts), int(starts.max()) + tokens.shape[1], dtype=torch.long)
    for row, prompt in enumerate(prompts):
        ids[row, : len(prompt)] = torch.tensor(prompt)
        ids[row, len(prompt) : len(prompt) + tokens.shape[1]] = tokens[row]
    return Rectangle(ids, starts, tokens, mask, temperature)
