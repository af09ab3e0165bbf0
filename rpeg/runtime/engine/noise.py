"""The noise that samples are drawn with."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rpeg.runtime.engine.philox import gumbel
from rpeg.runtime.engine.sampling import Sampling

NOISE_WORDS = 1 << 22
"""Noise that is drawn at once, in vocabulary entries."""


class Noise:
    """Gumbel noise of a chunk, drawn for as many positions at once as is reasonable."""

    def __init__(
        self,
        settings: Sampling,
        ordinals: Tensor,
        prompts: Sequence[int],
        banned: Tensor,
        drawn: Tensor | None,
    ) -> None:
        """Of the samples of some prompts of a batch, whose `ordinals` are [prompts]; `drawn` is
        that of the whole batch, where it is known. `banned` [vocabulary] is where the model is.
        """
        self._settings = settings
        self._vocab = len(banned)
        index = torch.tensor(prompts)
        self._ordinals = ordinals[index].to(banned.device)
        self._stride = max(1, NOISE_WORDS // (len(prompts) * settings.n * self._vocab))
        self._begin = 0
        """The position that the block begins with."""
        self._block: Sequence[Tensor] = ()
        if drawn is not None:
            rows = drawn.unflatten(0, (-1, settings.n))[index.to(drawn.device)]
            self._block = rows.flatten(0, 1).unbind(1)

    def at(self, t: int) -> Tensor | None:
        """[rows, vocabulary] noise of position t; None when sampling greedily. In order of t."""
        s = self._settings
        if s.temperature == 0.0:
            return None
        if t == self._begin + len(self._block):
            ahead = range(t, min(t + self._stride, s.max_tokens))
            self._block, self._begin = _drawn(s, self._ordinals, ahead, self._vocab).unbind(1), t
        return self._block[t - self._begin]


def drawn_at_once(settings: Sampling, ordinals: Tensor, vocab: int) -> Tensor | None:
    """[prompts x n, max_tokens, vocabulary] noise of a whole batch, group by group; None where it
    is too much for once, and when sampling greedily.
    """
    words = len(ordinals) * settings.n * settings.max_tokens * vocab
    if settings.temperature == 0.0 or words > NOISE_WORDS:
        return None
    return _drawn(settings, ordinals, range(settings.max_tokens), vocab)


def _drawn(s: Sampling, ordinals: Tensor, positions: range, vocab: int) -> Tensor:
    """[prompts x n, positions, vocabulary]."""
    samples = torch.arange(s.n, device=ordinals.device).repeat(len(ordinals))
    owners = ordinals.repeat_interleave(s.n)
    return gumbel(owners, samples, positions, vocab, run_seed=s.run_seed, seed=s.seed)
