"""Decoding a chunk: prompts of one length class and all their samples, from prefill to the last
end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
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
        state.append(*choose(allowed, noise.at(t)))
        state.end(self._ended(state))

    def _ended(self, state: _State) -> list[int]:
        """Live rows that the newest token ends."""
        newest, ends = state.sampled[-1], self._tokenizer.eos_ids
        ended = [row for row in state.live if newest[row] in ends]
        if self._settings.stop:
            others = set(state.live).difference(ended)
            ended += [row for row in others if self._stops([ids[row] for ids in state.sampled])]
        return ended

    def _stops(self, ids: list[int]) -> bool:
        """Whether a stop string is in what was sampled."""
        text = self._tokenizer.decode(ids)
        return any(s in text for s in self._settings.stop)


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
        return self._length == self._state.most or not self._state.live

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
        live = [] if self.over else self._state.live
        going = {row // self._state.n for row in live}
        return [prompt not in going for prompt in range(self._state.prompts)]

    def completions(self, prompts: range) -> Completions:
        """What the samples of some prompts are by now."""
        return self._state.completions(prompts)


class _State:
    """A chunk between two tokens: what was sampled so far, and the cache behind it.

    Which samples have ended is counted on the host, which waits for the device once a token: in
    plain Python, which stays in the cache where an operation on arrays comes back to a cold one.
    """

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
        self.n, self.most, self.prompts = n, settings.max_tokens, len(prompts)
        self._begin = (settings, prompts, width, real)
        ids = torch.tensor([[*p, *[0] * (width - len(p))] for p in prompts], device=device)
        ends = torch.tensor([len(p) for p in prompts], device=device)
        self.decoder, self._width = decoder, width
        self._cache = decoder.cache(len(prompts), width)
        hidden = decoder.prefill(ids, self._cache)
        last = hidden[torch.arange(len(prompts), device=device), ends - 1]
        self._hidden = last.repeat_interleave(n, dim=0)
        self._cache.repeat(n, settings.max_tokens)
        bias = torch.zeros(len(prompts), 1, slots, device=device)
        unread = torch.arange(width, device=device) >= ends[:, None, None]
        bias[..., :width].masked_fill_(unread, -torch.inf)
        self._bias = bias.repeat_interleave(n, dim=0)
        self._ends = ends[:, None].repeat_interleave(n, dim=0)
        self._tokens: list[Tensor] = []
        self._logprobs: list[Tensor] = []
        self._versions: list[int] = []
        self.sampled: list[list[int]] = []
        """By position: the token of each row."""
        self.live = list(range(real))
        """Rows that have not ended."""
        self._ended: dict[int, int] = {}
        """Of each row that has: its tokens."""

    def under(self, decoder: Decoder, t: int) -> _State:
        """The same samples before token t is read, the tokens before it read by other weights."""
        other = _State(decoder, *self._begin)
        other._tokens, other.sampled = self._tokens, self.sampled
        other._logprobs = self._logprobs
        other._ended, other.live, other._versions = self._ended, self.live, self._versions
        for place in range(t):
            other.advance(place)
        return other

    def logits(self) -> Tensor:
        """[rows, vocabulary] float32, from which the next token is predicted."""
        return self.decoder.logits(self._hidden)

    def append(self, tokens: Tensor, logprobs: Tensor) -> None:
        """The next token of every row [rows, 1], and its log-prob."""
        self._tokens.append(tokens)
        self.sampled.append(tokens.squeeze(1).tolist())
        self._logprobs.append(logprobs)
        self._versions.append(self.decoder.version)

    def end(self, rows: Sequence[int]) -> None:
        """Rows that end with the newest token."""
        if rows:
            self._ended |= dict.fromkeys(rows, len(self.sampled))
            self.live = [row for row in self.live if row not in self._ended]

    def advance(self, t: int) -> None:
        """Reads token t."""
        slot = self._width + t
        bias = self._bias[..., : slot + 1]
        self._hidden = self.decoder.step(self._tokens[t], self._ends + t, self._cache, slot, bias)

    def completions(self, prompts: range) -> Completions:
        """The rows of some prompts, on the host."""
        rows = range(prompts.start * self.n, prompts.stop * self.n)
        length = len(self.sampled)
        missing = self.most - length
        tokens, logprobs = (
            F.pad(torch.cat(sampled, dim=1)[rows.start : rows.stop], (0, missing)).cpu()
            for sampled in (self._tokens, self._logprobs)
        )
        return Completions(
            tokens,
            logprobs,
            lengths=torch.tensor([self._ended.get(row, length) for row in rows]),
            finished=torch.tensor([row in self._ended for row in rows]),
            versions=torch.tensor([*self._versions, *[-1] * missing], dtype=torch.int32),
        )


class Noise:
    """Gumbel noise of a chunk, drawn for as many positions at once as is reasonable."""

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
