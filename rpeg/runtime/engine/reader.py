"""A chunk of samples as a model reads it, from prefill to the last token."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rpeg.runtime.engine.decoder import Decoder
from rpeg.runtime.engine.sampling import Sampling


class Reader:
    """The newest hidden states of a chunk's samples, and the cache behind them."""

    def __init__(
        self, decoder: Decoder, prompts: Sequence[tuple[int, ...]], width: int, settings: Sampling
    ) -> None:
        """Reads the prompts, each for n samples, into the first `width` slots."""
        n, most = settings.n, settings.max_tokens
        device = decoder.device
        self.decoder = decoder
        self._begin = prompts, width, settings
        self._width, self._t = width, 0
        ids = torch.tensor([[*p, *[0] * (width - len(p))] for p in prompts], device=device)
        lengths = [len(p) for p in prompts for _ in range(n)]
        ends = torch.tensor(lengths, device=device)[:, None]
        last = [row // n * width + length - 1 for row, length in enumerate(lengths)]
        self._cache = decoder.cache(len(ends), width + most)
        hidden = decoder.prefill(ids, self._cache).flatten(0, 1)
        self._hidden = hidden.index_select(0, torch.tensor(last, device=device))
        slots = torch.arange(width + most, device=device)
        unread = (slots >= ends) & (slots < width)
        self._bias = torch.where(unread, -torch.inf, 0.0).unsqueeze(1)
        self._places = (ends + slots[:most]).split(1, dim=1)

    def under(self, decoder: Decoder) -> Reader:
        """The same before the first token, read by other weights."""
        return Reader(decoder, *self._begin)

    def logits(self) -> Tensor:
        """[rows, vocabulary] float32, from which the next token is predicted."""
        return self.decoder.logits(self._hidden)

    def advance(self, tokens: Tensor) -> None:
        """Reads the next token of every row, [rows, 1]."""
        t, slot = self._t, self._width + self._t
        bias = self._bias[..., : slot + 1]
        self._hidden = self.decoder.step(tokens, self._places[t], self._cache, slot, bias)
        self._t += 1
