"""The embedded engine: sampling inside the training process, on whole weights, with exact
log-probs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rpeg.runtime.engine.decoder import Decoder
from rpeg.runtime.engine.philox import gumbel
from rpeg.runtime.engine.sampling import choose, distribution
from rpeg.runtime.engine.weights import checksum
from rpeg.runtime.errors import GenerationFailure, WeightMismatch
from rpeg.runtime.groups import Groups, device
from rpeg.runtime.interfaces import WeightRegister
from rpeg.runtime.tokenizer import Tokenizer
from rpeg.runtime.trajectories import Prompts, Row, Trajectories

if TYPE_CHECKING:
    from rpeg.runtime.run import Run
    from rpeg.runtime.trainer import Model

CHUNK = 128
"""Samples that are decoded together; every batch is cut and padded to whole chunks."""
NOISE_WORDS = 1 << 22
"""Noise that is drawn at once, in vocabulary entries."""
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


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
    """Prompts of one length class, decoded together; their samples fill at most CHUNK rows."""

    prompts: list[int]
    """Which of the batch's prompts."""
    width: int
    """Slots for each prompt: a power of two."""


class EmbeddedEngine:
    """Samples with whole weights on every process; each data-parallel share its own prompts."""

    def __init__(self, run: Run, model: Model, *, groups: Groups) -> None:
        self.run = run
        self.shape = model.shape
        self.tokenizer: Tokenizer = model.tokenizer
        self.version = -1
        """Version of the weights in use; -1 before the first swap."""
        self._weights: dict[str, Tensor] = {}
        self._decoders: dict[str, Decoder] = {}
        banned = torch.zeros(self.shape.vocab, dtype=torch.bool, device=device())
        if self.tokenizer.pad_id is not None:
            banned[self.tokenizer.pad_id] = True
        self._banned = banned

    def swap_weights(self, register: WeightRegister) -> None:
        """Takes the register's weights. Raises WeightMismatch if their checksum isn't the
        register's.
        """
        weights = dict(register.read())
        found = checksum(weights.items())
        if found != register.checksum:
            raise WeightMismatch(
                f"weights of version {register.version} arrived damaged: checksum {found}, "
                f"published {register.checksum}; start again from the last checkpoint"
            )
        self._weights, self._decoders = weights, {}
        self.version = register.version

    def reset_prefix_cache(self) -> None:
        """Nothing to forget: keys and values live within one `generate`."""

    def generate(
        self,
        prompts: Prompts,
        *,
        n: int,
        max_tokens: int,
        temperature: float,
        top_p: float = 1.0,
        max_turns: int = 1,
        stop: tuple[str, ...] = (),
        dtype: str = "fp32",
        routing: str = "free",
        seed: int = 0,
    ) -> tuple[Trajectories, Tensor]:
        """n completions for each prompt, and the log-probs [samples, max_tokens] they were sampled
        under.

        `routing` matters to experts only, and these models are dense. Raises GenerationFailure for
        what this engine can't do.
        """
        if max_turns != 1:
            raise GenerationFailure("the embedded engine samples one turn: set max_turns=1")
        settings = Sampling(n, max_tokens, temperature, top_p, stop, self.run.seed, seed)
        with self.run.clock.stage("generate"), torch.inference_mode():
            return self._generate(prompts, settings, self._decoder(dtype))

    def _decoder(self, dtype: str) -> Decoder:
        if not self._weights:
            raise GenerationFailure("the engine has no weights yet: swap_weights comes first")
        if dtype not in DTYPES:
            raise GenerationFailure(f"the embedded engine has no {dtype}: use fp32 or bf16")
        if dtype not in self._decoders:
            self._decoders[dtype] = Decoder(self.shape, self._weights, DTYPES[dtype])
        return self._decoders[dtype]

    def _generate(
        self, prompts: Prompts, settings: Sampling, decoder: Decoder
    ) -> tuple[Trajectories, Tensor]:
        n, width = settings.n, settings.max_tokens
        ids = [self._encode(row, width) for row in prompts.rows]
        samples = len(ids) * n
        tokens = torch.zeros(samples, width, dtype=torch.long)
        logprobs = torch.zeros(samples, width)
        lengths = torch.zeros(samples, dtype=torch.long)
        finished = torch.zeros(samples, dtype=torch.bool)
        for chunk in chunks([len(i) for i in ids], n):
            rows = torch.tensor([p * n + k for p in chunk.prompts for k in range(n)])
            part = Decoding(decoder, settings, self.tokenizer, self._banned)
            part.run([ids[p] for p in chunk.prompts], prompts.ordinals[chunk.prompts], chunk.width)
            tokens[rows], logprobs[rows] = part.tokens, part.logprobs
            lengths[rows], finished[rows] = part.lengths, part.finished
        mask = torch.arange(width) < lengths.unsqueeze(1)
        y = Trajectories(
            rows=tuple(row for row in prompts.rows for _ in range(n)),
            prompt_ids=tuple(i for i in ids for _ in range(n)),
            tokens=tokens * mask,
            mask=mask,
            versions=torch.where(mask, self.version, -1).int(),
            finished=finished,
            ordinals=prompts.ordinals.repeat_interleave(n),
            samples=torch.arange(n).repeat(len(ids)),
            texts=tuple(self._texts(tokens, lengths, settings.stop)),
            n=n,
            temperature=settings.temperature,
        )
        return y, logprobs * mask

    def _encode(self, row: Row, max_tokens: int) -> tuple[int, ...]:
        ids = self.tokenizer.encode(row.prompt)
        if not ids:
            raise GenerationFailure("a prompt is empty: the model needs at least one token")
        if len(ids) + max_tokens > self.shape.positions:
            raise GenerationFailure(
                f"a prompt of {len(ids)} tokens and max_tokens={max_tokens} exceed the model's "
                f"{self.shape.positions} positions: lower max_tokens, or leave long prompts out"
            )
        return ids

    def _texts(self, tokens: Tensor, lengths: Tensor, stop: tuple[str, ...]) -> Iterator[str]:
        for ids, length in zip(tokens.tolist(), lengths.tolist(), strict=True):
            kept = [i for i in ids[:length] if i not in self.tokenizer.eos_ids]
            yield cut(self.tokenizer.decode(kept), stop)


class Decoding:
    """Decoding one chunk: its results are rows of the batch, padding rows left out."""

    def __init__(
        self, decoder: Decoder, settings: Sampling, tokenizer: Tokenizer, banned: Tensor
    ) -> None:
        self._decoder = decoder
        self._settings = settings
        self._tokenizer = tokenizer
        self._banned = banned
        self._eos = torch.tensor(sorted(tokenizer.eos_ids), device=banned.device)

    def run(self, prompts: Sequence[tuple[int, ...]], ordinals: Tensor, width: int) -> None:
        """Fills tokens, logprobs [samples, max_tokens], lengths and finished [samples]."""
        s, where = self._settings, self._banned.device
        real = len(prompts) * s.n
        ids, lengths, ordinals = self._padded(prompts, ordinals, width)
        cache = self._decoder.cache(len(ids), width + s.max_tokens)
        hidden = self._decoder.prefill(ids, cache)
        hidden = hidden[torch.arange(len(ids), device=where), lengths - 1].repeat_interleave(s.n, 0)
        cache.repeat(s.n, width)
        lengths = lengths.repeat_interleave(s.n)
        rows, slots = len(lengths), torch.arange(width + s.max_tokens, device=where)
        visible = ((slots < lengths[:, None]) | (slots >= width))[:, None, None, :]
        noise = Noise(s, ordinals.repeat_interleave(s.n), len(self._banned))
        done = torch.zeros(rows, dtype=torch.bool, device=where)
        done[real:] = True
        tokens = torch.zeros(rows, s.max_tokens, dtype=torch.long, device=where)
        logprobs = torch.zeros(rows, s.max_tokens, device=where)
        ends = torch.full((rows,), s.max_tokens, device=where)
        for t in range(s.max_tokens):
            allowed = distribution(
                self._decoder.logits(hidden), s.temperature, s.top_p, self._banned
            )
            tokens[:, t], logprobs[:, t] = choose(allowed, noise.at(t))
            ended = ~done & self._ended(tokens[:, : t + 1], done)
            ends[ended] = t + 1
            done |= ended
            if bool(done.all()) or t + 1 == s.max_tokens:
                break
            slot = width + t
            hidden = self._decoder.step(
                tokens[:, t], lengths + t, cache, slot, visible[..., : slot + 1]
            )
        self.tokens, self.logprobs = tokens[:real].cpu(), logprobs[:real].cpu()
        self.lengths, self.finished = ends[:real].cpu(), done[:real].cpu()

    def _padded(
        self, prompts: Sequence[tuple[int, ...]], ordinals: Tensor, width: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(ids [k, width], lengths [k], ordinals [k]) of a whole chunk, the last prompt repeated."""
        where = self._banned.device
        missing = max(1, CHUNK // self._settings.n) - len(prompts)
        filled = [*prompts, *[prompts[-1]] * missing]
        ids = torch.tensor([[*p, *[0] * (width - len(p))] for p in filled], device=where)
        lengths = torch.tensor([len(p) for p in filled], device=where)
        more = ordinals[-1:].expand(missing)
        return ids, lengths, torch.cat([ordinals, more]).to(where)

    def _ended(self, tokens: Tensor, done: Tensor) -> Tensor:
        """[rows] bool: the newest token ends its completion."""
        ended = torch.isin(tokens[:, -1], self._eos)
        if self._settings.stop:
            running = (~done & ~ended).nonzero().flatten().tolist()
            for row in running:
                text = self._tokenizer.decode(tokens[row].tolist())
                ended[row] = any(s in text for s in self._settings.stop)
        return ended


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
    """The power of two, at least 16, that holds a prompt."""
    return max(16, 1 << (length - 1).bit_length())


def cut(text: str, stop: tuple[str, ...]) -> str:
    """`text` up to the first stop string in it."""
    found = [at for s in stop if (at := text.find(s)) >= 0]
    return text[: min(found)] if found else text
