"""Decoding a chunk: prompts of one length class and all their samples, from prefill to the last
end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rpeg.runtime.engine.decoder import Decoder
from rpeg.runtime.engine.philox import gumbel
from rpeg.runtime.engine.sampling import choose, distribution
from rpeg.runtime.models.tokenizer import Tokenizer

CHUNK = 128
"""Samples that are decoded together; every batch is cut and padded to whole chunks."""
NOISE_WORDS = 1 << 22
"""Noise that is drawn at once, in vocabulary entries."""


@dataclass(frozen=True)
class Sampling:
    """Settings of one generate."""

    n: int
    max_tokens: int
    temperature: float
    top_p: float
    stop: tuple[str, ...]
    run_seed: int
    seed: int


@dataclass(frozen=True)
class Chunk:
    """Prompts that are decoded together; their samples fill at most CHUNK rows."""

    prompts: list[int]
    """Which of the batch's prompts."""
    width: int
    """Slots for each prompt: its length class."""


def chunks(lengths: Sequence[int], n: int) -> Iterator[Chunk]:
    """Prompts by length class, each class in order, as many as fill CHUNK samples at a time."""
    classes: dict[int, list[int]] = {}
    for prompt, length in enumerate(lengths):
        classes.setdefault(length_class(length), []).append(prompt)
    size = max(1, CHUNK // n)
    for width, prompts in sorted(classes.items()):
        for first in range(0, len(prompts), size):
            yield Chunk(prompts[first : first + size], width)


def length_class(length: int) -> int:
    """The power of two, at least 8, that holds a prompt."""
    return max(8, 1 << (length - 1).bit_length())


@dataclass(frozen=True)
class Completions:
    """What a chunk's samples became, prompt by prompt."""

    tokens: Tensor
    """[samples, max_tokens] int64; what stands past the end means nothing."""
    logprobs: Tensor
    """[samples, max_tokens] float32, likewise."""
    lengths: Tensor
    """[samples] int64."""
    finished: Tensor
    """[samples] bool: ended before max_tokens ran out."""
    versions: Tensor
    """[max_tokens] int32: which version of the weights predicted each token."""


Renew = Callable[[], Decoder | None]
"""Newer weights than those in use, if there are any by now."""


def never() -> Decoder | None:
    """The weights stay as they are."""
    return None


class Decoding:
    """Decodes chunks with one model, one tokenizer and one set of settings.

    Between two tokens it may go on with newer weights: these read again what was sampled so far.
    """

    def __init__(
        self,
        decoder: Decoder,
        settings: Sampling,
        tokenizer: Tokenizer,
        banned: Tensor,
        renew: Renew = never,
    ) -> None:
        self._decoder = decoder
        self._renew = renew
        self._settings = settings
        self._tokenizer = tokenizer
        self._banned = banned
        self._device = banned.device
        self._ends = torch.zeros_like(banned)
        self._ends[[i for i in tokenizer.eos_ids if i < len(banned)]] = True

    def run(self, prompts: Sequence[tuple[int, ...]], ordinals: Tensor, width: int) -> Completions:
        """n completions of each prompt; `ordinals` [prompts] are the prompts' own."""
        lane = self.start(prompts, ordinals, width)
        lane.step()
        while not lane.over:
            if (newer := self._renew()) is not None:
                self._decoder = newer
                lane.renew(newer)
            lane.step()
        return lane.completions(range(len(prompts)))

    def start(self, prompts: Sequence[tuple[int, ...]], ordinals: Tensor, width: int) -> Lane:
        """The same, before the first token."""
        s, real = self._settings, len(prompts) * self._settings.n
        missing = max(1, CHUNK // s.n) - len(prompts)
        prompts = [*prompts, *[prompts[-1]] * missing]
        ordinals = torch.cat([ordinals, ordinals[-1:].expand(missing)]).to(self._device)
        state = _State(self._decoder, s, prompts, width, real)
        noise = Noise(s, ordinals.repeat_interleave(s.n), len(self._banned))
        return Lane(self, state, noise)

    def predict(self, state: _State, noise: Noise, t: int) -> None:
        """Chooses token t of every row."""
        s = self._settings
        allowed = distribution(state.logits(), s.temperature, s.top_p, self._banned)
        state.append(t, *choose(allowed, noise.at(t)))
        state.end(self._ended(state, t))

    def _ended(self, state: _State, t: int) -> Tensor:
        """[rows] bool: the token at t ends its completion."""
        ended = self._ends[state.tokens[:, t]]
        if self._settings.stop:
            for row in (~state.done & ~ended).nonzero().flatten().tolist():
                text = self._tokenizer.decode(state.tokens[row, : t + 1].tolist())
                ended[row] = any(s in text for s in self._settings.stop)
        return ended


class Lane:
    """A chunk that is being decoded, a token at a time."""

    def __init__(self, decoding: Decoding, state: _State, noise: Noise) -> None:
        self._decoding = decoding
        self._state = state
        self._noise = noise
        self._length = 0

    @property
    def version(self) -> int:
        """Of the weights that predict its next token."""
        return self._state.decoder.version

    @property
    def over(self) -> bool:
        """Whether all samples have ended, or have as many tokens as they may."""
        return self._length == self._state.most or bool(self._state.done.all())

    def step(self) -> None:
        """Samples the next token."""
        if self._length:
            self._state.advance(self._length - 1)
        self._decoding.predict(self._state, self._noise, self._length)
        self._length += 1

    def renew(self, decoder: Decoder) -> None:
        """Goes on with other weights."""
        self._state = self._state.under(decoder, self._length - 1)

    def ended(self) -> list[bool]:
        """Of each prompt, whether all its samples have ended."""
        groups = self._state.done.view(-1, self._state.n).all(dim=1)
        return [True] * len(groups) if self.over else groups.tolist()

    def completions(self, prompts: range) -> Completions:
        """What the samples of some prompts are by now."""
        return self._state.completions(prompts)


class _State:
    """A chunk between two tokens: what was sampled so far, and the cache behind it."""

    def __init__(
        self,
        decoder: Decoder,
        settings: Sampling,
        prompts: Sequence[tuple[int, ...]],
        width: int,
        real: int,
    ) -> None:
        """Reads the prompts; rows from `real` on only fill up the chunk."""
        n, slots = settings.n, width + settings.max_tokens
        device = decoder.device
        self.n, self.most = n, settings.max_tokens
        self._begin = (settings, prompts, width, real)
        ids = torch.tensor([[*p, *[0] * (width - len(p))] for p in prompts], device=device)
        ends = torch.tensor([len(p) for p in prompts], device=device)
        self.decoder, self._width = decoder, width
        self._cache = decoder.cache(len(prompts), slots)
        hidden = decoder.prefill(ids, self._cache)
        last = hidden[torch.arange(len(prompts), device=device), ends - 1]
        self._hidden = last.repeat_interleave(n, dim=0)
        self._cache.repeat(n, width)
        self._ends = ends.repeat_interleave(n)
        places = torch.arange(slots, device=device)
        visible = (places < self._ends[:, None]) | (places >= width)
        self._bias = torch.zeros(visible.shape, device=device).masked_fill_(~visible, -torch.inf)
        rows = len(self._ends)
        self.tokens = torch.zeros(rows, settings.max_tokens, dtype=torch.long, device=device)
        self._logprobs = torch.zeros(rows, settings.max_tokens, device=device)
        self._lengths = torch.zeros(rows, dtype=torch.long, device=device)
        self.done = torch.arange(rows, device=device) >= real
        """[rows] bool: nothing more is kept of it."""
        self._versions = [-1] * settings.max_tokens

    def under(self, decoder: Decoder, t: int) -> _State:
        """The same samples before token t is read, the tokens before it read by other weights."""
        other = _State(decoder, *self._begin)
        other.tokens, other._logprobs = self.tokens, self._logprobs
        other._lengths, other.done, other._versions = self._lengths, self.done, self._versions
        for place in range(t):
            other.advance(place)
        return other

    def logits(self) -> Tensor:
        """[rows, vocabulary] float32, from which the next token is predicted."""
        return self.decoder.logits(self._hidden)

    def append(self, t: int, tokens: Tensor, logprobs: Tensor) -> None:
        """Token t of every row [rows], and its log-prob."""
        self.tokens[:, t], self._logprobs[:, t] = tokens, logprobs
        self._versions[t] = self.decoder.version

    def end(self, ended: Tensor) -> None:
        """Rows [rows] bool that end with the newest token, if they haven't before."""
        self._lengths += ~self.done
        self.done |= ended

    def advance(self, t: int) -> None:
        """Reads token t."""
        slot = self._width + t
        bias = self._bias[:, None, : slot + 1]
        self._hidden = self.decoder.step(self.tokens[:, t], self._ends + t, self._cache, slot, bias)

    def completions(self, prompts: range) -> Completions:
        """The rows of some prompts, on the host."""
        rows = slice(prompts.start * self.n, prompts.stop * self.n)
        parts = (self.tokens, self._logprobs, self._lengths, self.done)
        tokens, logprobs, lengths, done = (part[rows].cpu() for part in parts)
        versions = torch.tensor(self._versions, dtype=torch.int32)
        return Completions(tokens, logprobs, lengths, done, versions)


class Noise:
    """Gumbel noise of a chunk, drawn for as many positions at once as is reasonable."""

    def __init__(self, settings: Sampling, ordinals: Tensor, vocab: int) -> None:
        self._settings = settings
        self._ordinals = ordinals
        self._samples = torch.arange(len(ordinals), device=ordinals.device) % settings.n
        self._vocab = vocab
        self._stride = max(1, NOISE_WORDS // (len(ordinals) * vocab))
        self._block = ordinals.new_empty(0)

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
            )
        return self._block[:, t % self._stride]
