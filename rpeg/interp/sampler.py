"""Sampling: the next token is argmax(log-prob + Gumbel noise).

The noise is a function of its coordinates: seeds of run and operation, prompt, sample, position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rpeg.interp.network import Network, Tensors
from rpeg.interp.values import Weights
from rpeg.runtime.engine.philox import gumbel
from rpeg.runtime.trajectories import Prompts, Trajectories


@dataclass(frozen=True)
class SamplingSettings:
    """Settings of one generate."""

    n: int
    max_tokens: int
    temperature: float
    top_p: float
    stop: tuple[str, ...]
    run_seed: int
    seed: int


@dataclass(frozen=True)
class Completion:
    """One sampled completion; all lists have one entry per token."""

    tokens: list[int]
    logprobs: list[float]
    finished: bool
    versions: list[int]
    """Of the weights that wrote it; -1 where a tool did."""
    mask: list[bool]
    """Whether weights wrote it."""


@torch.no_grad()
def sample(
    weights: Weights, prompts: Prompts, settings: SamplingSettings
) -> tuple[Trajectories, Tensor]:
    """n completions for each prompt, and the log-probs [samples, max_tokens] they were drawn under.

    Prompts of one length are sampled together, so that nothing is padded.
    """
    network, n = weights.model.network, settings.n
    tensors = weights.model.effective(weights.tensors)
    ids = [network.tokenizer.encode(row.prompt) for row in prompts.rows]
    completions: list[list[Completion]] = [[] for _ in ids]
    for length in sorted({len(prompt) for prompt in ids}):
        chosen = [k for k, prompt in enumerate(ids) if len(prompt) == length]
        ordinals = prompts.ordinals[chosen].repeat_interleave(n)
        samples = torch.arange(n).repeat(len(chosen))
        rows = Rows(network, tensors, settings, ordinals, samples, weights.version)
        contexts = torch.tensor([ids[k] for k in chosen]).repeat_interleave(n, dim=0)
        found = rows.run(contexts, range(settings.max_tokens))
        for place, k in enumerate(chosen):
            completions[k] = found[place * n : (place + 1) * n]
    everything = [one for group in completions for one in group]
    return collated(weights, prompts, ids, everything, settings)


class Rows:
    """Rows whose contexts have one length."""

    def __init__(
        self,
        network: Network,
        tensors: Tensors,
        settings: SamplingSettings,
        ordinals: Tensor,
        samples: Tensor,
        version: int = 0,
    ) -> None:
        self._network = network
        self._tensors = tensors
        self._settings = settings
        self._ordinals = ordinals
        self._samples = samples
        self._version = version

    def run(
        self, contexts: Tensor, positions: range, before: Sequence[int] = ()
    ) -> list[Completion]:
        """Completions of `contexts` [rows, length], for these positions of the samples.

        `before` are the tokens of their turn that the contexts end with already.
        """
        from transformers import DynamicCache

        cache, ids = DynamicCache(), contexts
        tokens = torch.empty(len(ids), 0, dtype=torch.long)
        logprobs = torch.empty(len(ids), 0)
        ends = [0] * len(ids)
        for count, position in enumerate(positions, start=1):
            logits = self._network.logits(self._tensors, ids, cache)[:, -1]
            ids, drawn = self._draw(logits, position)
            tokens, logprobs = torch.cat([tokens, ids], 1), torch.cat([logprobs, drawn], 1)
            for row, end in enumerate(ends):
                if not end and self._ended([*before, *tokens[row].tolist()]):
                    ends[row] = count
            if all(ends):
                break
        pairs = zip(tokens.tolist(), logprobs.tolist(), ends, strict=True)
        return [
            self._completion(t[: end or None], p[: end or None], end > 0) for t, p, end in pairs
        ]

    def _completion(self, tokens: list[int], logprobs: list[float], finished: bool) -> Completion:
        count = len(tokens)
        return Completion(tokens, logprobs, finished, [self._version] * count, [True] * count)

    def _draw(self, logits: Tensor, position: int) -> tuple[Tensor, Tensor]:
        """(tokens, their log-probs), both [rows, 1], from logits [rows, vocabulary]."""
        s = self._settings
        # Greedy sampling has no distribution of its own: it reports the model's.
        logprobs = nucleus((logits / (s.temperature or 1.0)).log_softmax(dim=-1), s.top_p)
        tokens = (logprobs + self._noise(position)).argmax(dim=-1, keepdim=True)
        return tokens, logprobs.gather(1, tokens)

    def _noise(self, position: int) -> Tensor:
        s = self._settings
        if s.temperature == 0.0:
            return torch.zeros(())
        where, vocab = range(position, position + 1), self._network.vocab
        noise = gumbel(
            self._ordinals, self._samples, where, vocab, run_seed=s.run_seed, seed=s.seed
        )
        return noise[:, 0]

    def _ended(self, tokens: list[int]) -> bool:
        tokenizer, stop = self._network.tokenizer, self._settings.stop
        if tokens[-1] in tokenizer.eos_ids:
            return True
        return bool(stop) and any(text in tokenizer.decode(tokens) for text in stop)


def nucleus(logprobs: Tensor, top_p: float) -> Tensor:
    """Renormalised log-probs of the most probable tokens that together reach `top_p`.

    Top-p sampling (arXiv:1904.09751); the token that crosses the bound is in.
    """
    if top_p >= 1.0:
        return logprobs
    ordered, index = logprobs.sort(dim=-1, descending=True, stable=True)
    p = ordered.exp()
    kept = ordered.masked_fill(p.cumsum(dim=-1) - p >= top_p, float("-inf"))
    return torch.empty_like(kept).scatter_(-1, index, kept).log_softmax(dim=-1)


def collated(
    weights: Weights,
    prompts: Prompts,
    ids: Sequence[tuple[int, ...]],
    completions: Sequence[Completion],
    settings: SamplingSettings,
) -> tuple[Trajectories, Tensor]:
    """Completions as trajectories, n for each prompt, and their log-probs."""
    n, width = settings.n, settings.max_tokens
    tokens = torch.zeros(len(completions), width, dtype=torch.long)
    logprobs = torch.zeros(len(completions), width)
    mask = torch.zeros(len(completions), width, dtype=torch.bool)
    versions = torch.full((len(completions), width), -1, dtype=torch.int32)
    for row, one in enumerate(completions):
        length = len(one.tokens)
        tokens[row, :length] = torch.tensor(one.tokens)
        logprobs[row, :length] = torch.tensor(one.logprobs)
        mask[row, :length] = torch.tensor(one.mask)
        versions[row, :length] = torch.tensor(one.versions, dtype=torch.int32)
    y = Trajectories(
        rows=tuple(row for row in prompts.rows for _ in range(n)),
        prompt_ids=tuple(prompt for prompt in ids for _ in range(n)),
        tokens=tokens,
        mask=mask,
        versions=versions,
        finished=torch.tensor([one.finished for one in completions]),
        ordinals=prompts.ordinals.repeat_interleave(n),
        samples=torch.arange(n).repeat(len(ids)),
        texts=tuple(_text(weights.model.network, one, settings.stop) for one in completions),
        n=n,
        temperature=settings.temperature,
    )
    return y, logprobs


def _text(network: Network, said: Completion, stop: tuple[str, ...]) -> str:
    """The completion's text without end tokens, its last turn up to the first stop string."""
    tokenizer, turn = network.tokenizer, 1 + max(_tools(said), default=-1)
    parts = (
        tokenizer.decode([token for token in part if token not in tokenizer.eos_ids])
        for part in (said.tokens[:turn], said.tokens[turn:])
    )
    before, last = parts
    return before + last[: min([at for s in stop if (at := last.find(s)) >= 0], default=len(last))]


def _tools(said: Completion) -> list[int]:
    """Positions of what tools wrote."""
    return [position for position, written in enumerate(said.mask) if not written]
