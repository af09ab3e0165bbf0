"""Decoding a chunk: prompts of one length class and all their samples, from prefill to the last
end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch.nn.functional import pad

from rpeg.runtime.engine.decoder import Decoder
from rpeg.runtime.engine.noise import Noise, drawn_at_once
from rpeg.runtime.engine.reader import Reader
from rpeg.runtime.engine.sampling import Sampling, choose, distribution
from rpeg.runtime.models.tokenizer import Tokenizer

CHUNK = 128
"""Samples that are decoded together; every batch is cut and padded to whole chunks."""


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
    """What samples became, prompt by prompt."""

    tokens: Tensor
    """[samples, max_tokens] int64; what stands past the end means nothing."""
    logprobs: Tensor
    """[samples, max_tokens] float32, likewise."""
    lengths: Tensor
    """[samples] int64."""
    finished: Tensor
    """[samples] bool: ended before max_tokens ran out."""
    versions: Tensor
    """[samples, max_tokens] int32: which version of the weights predicted each token."""

    def at(self, index: Tensor) -> Completions:
        """The samples at `index` [k], in that order."""
        return Completions(*(getattr(self, part.name)[index] for part in fields(self)))

    @staticmethod
    def joined(parts: Sequence[Completions]) -> Completions:
        """All samples, part by part."""
        if len(parts) == 1:
            return parts[0]
        names = [part.name for part in fields(Completions)]
        return Completions(*(torch.cat([getattr(p, name) for p in parts]) for name in names))


Renew = Callable[[], Decoder | None]
"""Newer weights than those in use, if there are any by now."""


def never() -> Decoder | None:
    """The weights stay as they are."""
    return None


class Decoding:
    """Decodes prompts with one model, one tokenizer and one set of settings.

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
        self.decoder = decoder
        self.settings = settings
        self.tokenizer = tokenizer
        self.banned = banned
        """[vocabulary] bool: what is never sampled."""
        self._renew = renew

    def run(self, ids: Sequence[tuple[int, ...]], ordinals: Tensor) -> Completions:
        """n completions of each prompt, in order; `ordinals` [prompts] are the prompts' own."""
        s = self.settings
        drawn = drawn_at_once(s, ordinals.to(self.decoder.device), len(self.banned))
        order: list[int] = []
        found: list[Completions] = []
        for chunk in chunks([len(prompt) for prompt in ids], s.n):
            found.append(self._complete(Lane(self, chunk, ids, ordinals, drawn), chunk.prompts))
            order += chunk.prompts
        whole = Completions.joined(found)
        if order == list(range(len(ids))):
            return whole
        samples = torch.arange(len(order) * s.n).view(-1, s.n)
        return whole.at(samples[torch.tensor(order).argsort()].flatten())

    def _complete(self, lane: Lane, prompts: Sequence[int]) -> Completions:
        lane.step()
        while not lane.over:
            if (newer := self._renew()) is not None:
                self.decoder = newer
                lane.renew(newer)
            lane.step()
        return lane.completions(prompts)

    def start(self, chunk: Chunk, ids: Sequence[tuple[int, ...]], ordinals: Tensor) -> Lane:
        """A chunk of the prompts `ids`, before its first token."""
        return Lane(self, chunk, ids, ordinals)


class Lane:
    """A chunk that is being decoded, a token at a time.

    Which samples have ended is counted on the host, which waits for the device once a token: in
    plain Python, which stays in the cache where an operation on arrays comes back to a cold one.
    """

    def __init__(
        self,
        decoding: Decoding,
        chunk: Chunk,
        ids: Sequence[tuple[int, ...]],
        ordinals: Tensor,
        drawn: Tensor | None = None,
    ) -> None:
        """Reads the prompts; rows that only fill up the chunk follow its own. `drawn` is the noise
        of all samples of `ids`, where it is known.
        """
        s = self._settings = decoding.settings
        self._tokenizer, self._banned = decoding.tokenizer, decoding.banned
        missing = max(1, CHUNK // s.n) - len(chunk.prompts)
        filled = [*chunk.prompts, *[chunk.prompts[-1]] * missing]
        self._reader = Reader(decoding.decoder, [ids[prompt] for prompt in filled], chunk.width, s)
        self._noise = Noise(s, ordinals, filled, self._banned, drawn)
        self._first = {prompt: place * s.n for place, prompt in enumerate(chunk.prompts)}
        """The first row of each prompt."""
        self._live = list(range(len(chunk.prompts) * s.n))
        """Rows that have not ended."""
        self._ended: dict[int, int] = {}
        """Of each row that has: its tokens."""
        self._tokens: list[Tensor] = []
        self._logprobs: list[Tensor] = []
        self._versions: list[int] = []
        self._sampled: list[list[int]] = []
        """By position: the token of each row."""

    @property
    def version(self) -> int:
        """Of the weights that predict its next token."""
        return self._reader.decoder.version

    @property
    def over(self) -> bool:
        """Whether all samples have ended, or have as many tokens as they may."""
        return len(self._sampled) == self._settings.max_tokens or not self._live

    def step(self) -> None:
        """Samples the next token."""
        s, t = self._settings, len(self._sampled)
        if t:
            self._reader.advance(self._tokens[-1])
        allowed = distribution(self._reader.logits(), s.temperature, s.top_p, self._banned)
        tokens, logprobs = choose(allowed, self._noise.at(t))
        self._tokens.append(tokens)
        self._logprobs.append(logprobs)
        self._versions.append(self.version)
        self._sampled.append(tokens.squeeze(1).tolist())
        if ended := self._ending():
            self._ended |= dict.fromkeys(ended, t + 1)
            self._live = [row for row in self._live if row not in self._ended]

    def _ending(self) -> list[int]:
        """Live rows that the newest token ends."""
        newest, ends = self._sampled[-1], self._tokenizer.eos_ids
        ended = [row for row in self._live if newest[row] in ends]
        if self._settings.stop:
            ended += filter(self._stops, set(self._live).difference(ended))
        return ended

    def _stops(self, row: int) -> bool:
        """Whether a stop string is in what was sampled."""
        text = self._tokenizer.decode([ids[row] for ids in self._sampled])
        return any(s in text for s in self._settings.stop)

    def renew(self, decoder: Decoder) -> None:
        """Goes on with other weights, which read again what came before the newest token."""
        self._reader = self._reader.under(decoder)
        for tokens in self._tokens[:-1]:
            self._reader.advance(tokens)

    def ended(self, prompt: int) -> bool:
        """Whether all samples of a prompt have ended."""
        first = self._first[prompt]
        rows = range(first, first + self._settings.n)
        return self.over or all(row in self._ended for row in rows)

    def completions(self, prompts: Sequence[int]) -> Completions:
        """What the samples of some prompts are by now, on the host."""
        s, length = self._settings, len(self._sampled)
        rows = [self._first[prompt] + k for prompt in prompts for k in range(s.n)]
        missing = s.max_tokens - length
        tokens, logprobs = (
            pad(torch.cat(sampled, dim=1), (0, missing)).cpu()
            for sampled in (self._tokens, self._logprobs)
        )
        if rows != list(range(len(tokens))):
            tokens, logprobs = tokens[rows], logprobs[rows]
        versions = torch.tensor([*self._versions, *[-1] * missing], dtype=torch.int32)
        return Completions(
            tokens,
            logprobs,
            lengths=torch.tensor([self._ended.get(row, length) for row in rows]),
            finished=torch.tensor([row in self._ended for row in rows]),
            versions=versions.expand(len(rows), -1),
        )
