"""Decoding chunks: prompts of one length class each and all their samples, from prefill to the last
end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch.nn.functional import pad

from rpeg.runtime.engine.decoder import Decoder
from rpeg.runtime.engine.noise import Noise
from rpeg.runtime.engine.reader import Reader
from rpeg.runtime.engine.sampling import Sampling, choose, distribution
from rpeg.runtime.models.tokenizer import Tokenizer
from rpeg.runtime.numerics.blocks import BLOCK

CHUNK = 128
"""Samples that a model reads together; every batch is cut and padded to whole chunks."""
SIDE_BY_SIDE = 4
"""Chunks that choose their tokens together, as far as their logits fit in a block."""


@dataclass(frozen=True)
class Chunk:
    """Prompts that are read together; their samples fill at most CHUNK rows."""

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
        parts = list(chunks([len(prompt) for prompt in ids], s.n))
        together = min(SIDE_BY_SIDE, max(1, BLOCK // (CHUNK * len(self.banned))))
        order: list[int] = []
        found: list[Completions] = []
        for first in range(0, len(parts), together):
            some = parts[first : first + together]
            prompts = [prompt for chunk in some for prompt in chunk.prompts]
            found.append(self._complete(self.start(some, ids, ordinals), prompts))
            order += prompts
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

    def start(
        self, chunks: Sequence[Chunk], ids: Sequence[tuple[int, ...]], ordinals: Tensor
    ) -> Lane:
        """Chunks of the prompts `ids`, before their first token."""
        return Lane(self, chunks, ids, ordinals)


class Lane:
    """Chunks that are decoded side by side, a token at a time: each is read by itself, then all
    their rows choose at once.

    Which samples have ended is counted on the host, which waits for the device once a token: in
    plain Python, which stays in the cache where an operation on arrays comes back to a cold one.
    """

    def __init__(
        self,
        decoding: Decoding,
        chunks: Sequence[Chunk],
        ids: Sequence[tuple[int, ...]],
        ordinals: Tensor,
    ) -> None:
        """Reads the prompts; rows that only fill up a chunk follow its own."""
        s = self._settings = decoding.settings
        self._tokenizer, self._banned = decoding.tokenizer, decoding.banned
        size = max(1, CHUNK // s.n)
        filled = [[*c.prompts, *[c.prompts[-1]] * (size - len(c.prompts))] for c in chunks]
        self._readers = [
            Reader(decoding.decoder, [ids[prompt] for prompt in prompts], chunk.width, s)
            for prompts, chunk in zip(filled, chunks, strict=True)
        ]
        owners = ordinals[torch.tensor(filled).flatten()].repeat_interleave(s.n)
        self._noise = Noise(s, owners.to(decoding.decoder.device), len(self._banned))
        rows = self._rows = size * s.n
        """Of a chunk."""
        self._first = {
            prompt: k * rows + place * s.n
            for k, chunk in enumerate(chunks)
            for place, prompt in enumerate(chunk.prompts)
        }
        """The first row of each prompt."""
        self._live = [
            list(range(k * rows, k * rows + len(chunk.prompts) * s.n))
            for k, chunk in enumerate(chunks)
        ]
        """Of each chunk, the rows that have not ended."""
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
        return self._readers[0].decoder.version

    @property
    def over(self) -> bool:
        """Whether all samples have ended, or have as many tokens as they may."""
        return len(self._sampled) == self._settings.max_tokens or not any(self._live)

    def step(self) -> None:
        """Samples the next token."""
        s, t = self._settings, len(self._sampled)
        if t:
            self._read(t - 1)
        logits = [reader.logits() for reader in self._readers]
        whole = logits[0] if len(logits) == 1 else torch.cat(logits)
        allowed = distribution(whole, s.temperature, s.top_p, self._banned)
        tokens, logprobs = choose(allowed, self._noise.at(t))
        self._tokens.append(tokens)
        self._logprobs.append(logprobs)
        self._versions.append(self.version)
        self._sampled.append(tokens.squeeze(1).tolist())
        if self._settings.stop or not self._tokenizer.eos_ids.isdisjoint(self._sampled[-1]):
            self._live = [self._going(rows) for rows in self._live]

    def _read(self, t: int) -> None:
        """Has the model read token t of the chunks that are not over."""
        tokens = self._tokens[t].split(self._rows)
        for reader, its, live in zip(self._readers, tokens, self._live, strict=True):
            if live:
                reader.advance(its)

    def _going(self, rows: list[int]) -> list[int]:
        """Those of live rows that the newest token does not end."""
        newest, ends = self._sampled[-1], self._tokenizer.eos_ids
        ended = [row for row in rows if newest[row] in ends]
        if self._settings.stop:
            ended += filter(self._stops, set(rows).difference(ended))
        if not ended:
            return rows
        self._ended |= dict.fromkeys(ended, len(self._sampled))
        return [row for row in rows if row not in self._ended]

    def _stops(self, row: int) -> bool:
        """Whether a stop string is in what was sampled."""
        text = self._tokenizer.decode([ids[row] for ids in self._sampled])
        return any(s in text for s in self._settings.stop)

    def renew(self, decoder: Decoder) -> None:
        """Goes on with other weights, which read again what came before the newest token."""
        self._readers = [reader.under(decoder) for reader in self._readers]
        for t in range(len(self._sampled) - 1):
            self._read(t)

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
