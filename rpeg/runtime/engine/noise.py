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
    """Gumbel noise of some rows, drawn for as many positions at once as is reasonable."""

    def __init__(self, settings: Sampling, ordinals: Tensor, vocab: int) -> None:
        self._settings = settings
        self._ordinals = ordinals
        self._samples = torch.arange(len(ordinals), device=ordinals.device) % settings.n
        self._vocab = vocab
        self._stride = max(1, NOISE_WORDS // (len(ordinals) * vocab))
        self._block: Sequence[Tensor] = ()

    def at(self, t: int) -> Tensor | None:
        """[rows, vocabulary] noise of position t; None when sampling greedily. In order of t."""
        s = self._settings
        if s.temperature == 0.0:
            return None
        if t % self._stride == 0:
            ahead = range(t, min(t + self._stride, s.max_tokens))
            self._block = gumbel(
                self._ordinals,
                self._samples,
                ahead,
                self._vocab,
                run_seed=s.run_seed,
                seed=s.seed,
            ).unbind(1)
        return self._block[t % self._stride]
