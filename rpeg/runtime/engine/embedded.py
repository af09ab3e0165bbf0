"""The embedded engine: sampling inside the training process, on whole weights, with exact
log-probs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from rpeg.runtime.batches.examples import Examples
from rpeg.runtime.engine.decoder import Decoder
from rpeg.runtime.engine.decoding import Completions, Decoding, Renew, never
from rpeg.runtime.engine.sampling import Sampling, distribution
from rpeg.runtime.errors import GenerationFailure
from rpeg.runtime.groups import Groups, device
from rpeg.runtime.interfaces import RenewedWeights, Sampled, SeededHost, WeightReader
from rpeg.runtime.models.tokenizer import Tokenizer
from rpeg.runtime.trajectories import Prompts, Row, Trajectories

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class EmbeddedEngine:
    """Samples with whole weights on every process; each data-parallel share its own prompts."""

    def __init__(self, run: SeededHost, model: Sampled, *, groups: Groups) -> None:
        if model.shape.critic:
            raise GenerationFailure(f"`{model.name}` is a model that scores: it predicts no tokens")
        self.run = run
        self.name = model.name
        """Of the model that it samples from."""
        self.shape = model.shape
        self.tokenizer: Tokenizer = model.tokenizer
        self.version = -1
        """Version of the weights in use; -1 before the first swap."""
        self._checksum = ""
        self._weights: dict[str, Tensor] = {}
        self._decoders: dict[str, Decoder] = {}
        self._renewing: RenewedWeights | None = None
        banned = torch.zeros(self.shape.vocab, dtype=torch.bool, device=device())
        if self.tokenizer.pad_id is not None:
            banned[self.tokenizer.pad_id] = True
        self._banned = banned

    def swap_weights(self, register: WeightReader) -> None:
        """Takes the register's weights, unless it has them."""
        if (register.version, register.checksum) == (self.version, self._checksum):
            return
        self._weights, self._decoders = dict(register.read()), {}
        self.version, self._checksum = register.version, register.checksum

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
        renew: RenewedWeights | None = None,
    ) -> tuple[Trajectories, Tensor]:
        """n completions for each prompt, and the log-probs [samples, max_tokens] they were sampled
        under.

        With `renew`, samples go on under newer weights of that register as soon as some are there:
        each token has the version that predicted it. `routing` matters to experts only, and these
        models are dense. Raises GenerationFailure for what this engine can't do.
        """
        settings = self.sampling(n, max_tokens, temperature, top_p, max_turns, stop, seed)
        self._renewing = renew
        with self.run.clock.stage("generate"):
            return self.run.oracle.completions(self, prompts, settings, dtype)

    def sampling(
        self,
        n: int,
        max_tokens: int,
        temperature: float,
        top_p: float,
        max_turns: int,
        stop: tuple[str, ...],
        seed: int,
    ) -> Sampling:
        """The settings of a generate. Raises GenerationFailure for what this engine can't do."""
        if max_turns != 1:
            raise GenerationFailure("the embedded engine samples one turn: set max_turns=1")
        return Sampling(n, max_tokens, temperature, top_p, stop, self.run.seed, seed)

    @torch.inference_mode()
    def sample(
        self, prompts: Prompts, settings: Sampling, dtype: str
    ) -> tuple[Trajectories, Tensor]:
        """Completions by the weights in use, and the log-probs they were sampled under."""
        decoding = self.decoding(settings, dtype, renew=lambda: self._renewed(dtype))
        return self._generate(prompts, settings, decoding)

    def decoding(self, settings: Sampling, dtype: str, renew: Renew = never) -> Decoding:
        """What decodes chunks by the weights in use."""
        return Decoding(self.decoder(dtype), settings, self.tokenizer, self._banned, renew)

    @torch.inference_mode()
    def logprobs(self, y: Trajectories, settings: Sampling, dtype: str) -> Tensor:
        """[samples, max_tokens] log-probs under which the weights in use would sample y's tokens;
        zero outside the mask.
        """
        examples, decoder = Examples.of(y, self.tokenizer), self.decoder(dtype)
        result = torch.zeros(y.tokens.shape)
        for row in range(len(examples)):
            inputs = examples.inputs([row]).to(device())
            hidden = decoder.prefill(inputs.input_ids, decoder.cache(*inputs.input_ids.shape))
            logits = decoder.logits(hidden[0, inputs.predicting])
            allowed = distribution(logits, settings.temperature, settings.top_p, self._banned)
            chosen = allowed.gather(-1, inputs.targets.unsqueeze(-1)).squeeze(-1)
            result[row, : inputs.mask.shape[1]] = inputs.rectangle(chosen).squeeze(0).cpu()
        return result

    def decoder(self, dtype: str) -> Decoder:
        """The weights in use. Raises GenerationFailure if there are none of this type."""
        if not self._weights:
            raise GenerationFailure("the engine has no weights yet: swap_weights comes first")
        if dtype not in DTYPES:
            raise GenerationFailure(f"the embedded engine has no {dtype}: use fp32 or bf16")
        if dtype not in self._decoders:
            made = Decoder(self.shape, self._weights, DTYPES[dtype], self.version)
            self._decoders[dtype] = made
        return self._decoders[dtype]

    def _renewed(self, dtype: str) -> Decoder | None:
        """The decoder of newer weights, if some are there."""
        register = self._renewing
        if register is None or not register.renew():
            return None
        self.swap_weights(register)
        return self.decoder(dtype)

    def _generate(
        self, prompts: Prompts, settings: Sampling, decoding: Decoding
    ) -> tuple[Trajectories, Tensor]:
        ids = [self.encode(row, settings.max_tokens) for row in prompts.rows]
        return self.trajectories(prompts, ids, settings, decoding.run(ids, prompts.ordinals))

    def trajectories(
        self,
        prompts: Prompts,
        ids: Sequence[tuple[int, ...]],
        settings: Sampling,
        found: Completions,
    ) -> tuple[Trajectories, Tensor]:
        """Trajectories and log-probs of the completions of all prompts."""
        n = settings.n
        mask = torch.arange(settings.max_tokens) < found.lengths.unsqueeze(1)
        y = Trajectories(
            rows=tuple(row for row in prompts.rows for _ in range(n)),
            prompt_ids=tuple(i for i in ids for _ in range(n)),
            tokens=found.tokens * mask,
            mask=mask,
            versions=torch.where(mask, found.versions, -1),
            finished=found.finished,
            ordinals=prompts.ordinals.repeat_interleave(n),
            samples=torch.arange(n).repeat(len(ids)),
            texts=tuple(self._texts(found.tokens, found.lengths, settings.stop)),
            n=n,
            temperature=settings.temperature,
        )
        return y, found.logprobs * mask

    def encode(self, row: Row, max_tokens: int) -> tuple[int, ...]:
        """A prompt's ids. Raises GenerationFailure if the model has no room for its completion."""
        ids = self.tokenizer.encode_prompt(row)
        if len(ids) + max_tokens > self.shape.positions:
            raise GenerationFailure(
                f"{row.place}: a prompt of {len(ids)} tokens and max_tokens={max_tokens} "
                f"exceed the model's {self.shape.positions} positions: "
                "lower max_tokens, or leave long prompts out"
            )
        return ids

    def _texts(self, tokens: Tensor, lengths: Tensor, stop: tuple[str, ...]) -> Iterator[str]:
        """Each sample's; those of a group are often the same."""
        ends, known = self.tokenizer.eos_ids, dict[tuple[int, ...], str]()
        for ids, length in zip(tokens.tolist(), lengths.tolist(), strict=True):
            kept = tuple(ids[: length - 1] if ids[length - 1] in ends else ids[:length])
            if kept not in known:
                known[kept] = cut(self.tokenizer.decode(kept), stop)
            yield known[kept]


def cut(text: str, stop: tuple[str, ...]) -> str:
    """`text` up to the first stop string in it."""
    found = [at for s in stop if (at := text.find(s)) >= 0] if stop else []
    return text[: min(found)] if found else text
