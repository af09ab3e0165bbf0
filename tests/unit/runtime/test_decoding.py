"""What a sample becomes depends on its prompt alone, not on what is decoded beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rpeg import runtime as rt
from rpeg.runtime.engine import noise
from rpeg.runtime.engine.decoder import Decoder
from rpeg.runtime.engine.decoding import Completions, Decoding, chunks
from rpeg.runtime.engine.sampling import Sampling
from rpeg.runtime.models.model_source import ModelSource
from tests.unit.interp.pipelines import write_model

TOKENS = 6
SETTINGS = Sampling(4, TOKENS, 1.0, 1.0, (), run_seed=1, seed=2)
LENGTHS = [3, 12, 5, 9, 2, 16, 1] * 12
"""Of prompts: two length classes, mixed; 84 x 4 samples are 4 chunks, two of them not full."""

Decode = Callable[..., Completions]


@pytest.fixture
def decode(run: rt.Run, tmp_path: Path) -> Decode:
    folder = write_model(tmp_path / "model", eos_token_id=[1, 2, 3])
    model = rt.SampledModel(run, "actor", source=str(folder))
    banned = torch.zeros(model.shape.vocab, dtype=torch.bool)
    drawn = torch.Generator().manual_seed(0)
    ids = [tuple(torch.randint(4, 20, (k,), generator=drawn).tolist()) for k in LENGTHS]
    source = ModelSource(model.source.folder, seed=1)
    weights = {name: source.read(name) for name, _ in model.shape.tensors()}

    def decoded(
        settings: Sampling = SETTINGS, prompts: Sequence[int] = range(len(ids)), renewals: int = 0
    ) -> Completions:
        made = iter([Decoder(model.shape, weights, torch.float32, k + 1) for k in range(renewals)])
        first = Decoder(model.shape, weights, torch.float32, 0)
        decoding = Decoding(first, settings, model.tokenizer, banned, lambda: next(made, None))
        return decoding.run([ids[p] for p in prompts], torch.tensor(prompts))

    return decoded


def same(a: Completions, b: Completions) -> bool:
    """The same samples under the same log-probs, to the bit."""
    mask = torch.arange(a.tokens.shape[1]) < a.lengths.unsqueeze(1)
    fields = [(a.tokens * mask, b.tokens * mask), (a.logprobs * mask, b.logprobs * mask)]
    fields += [(a.lengths, b.lengths), (a.finished, b.finished)]
    return all(torch.equal(x, y) for x, y in fields)


@pytest.mark.parametrize(
    "settings",
    [SETTINGS, replace(SETTINGS, temperature=0.0), replace(SETTINGS, top_p=0.7, stop=("4", "57"))],
    ids=["sampled", "greedy", "stops"],
)
def test_prompts_are_answered_the_same_alone_and_together(
    decode: Decode, settings: Sampling
) -> None:
    whole = decode(settings)
    assert len({(chunk.width, len(chunk.prompts)) for chunk in chunks(LENGTHS, settings.n)}) == 4
    assert 0 < whole.finished.sum() < len(whole.finished)
    assert whole.lengths.unique().numel() > 1
    samples = torch.arange(len(whole.tokens)).view(-1, settings.n)
    for prompts in ([0], [83, 1], list(range(40, 80, 3))):
        assert same(whole.at(samples[prompts].flatten()), decode(settings, prompts))


def test_noise_is_the_same_drawn_at_once_and_bit_by_bit(
    decode: Decode, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []
    gumbel = noise.gumbel

    def counting(ordinals: torch.Tensor, *args: object, **more: object) -> torch.Tensor:
        counted.append(len(ordinals))
        return gumbel(ordinals, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(noise, "gumbel", counting)
    whole = decode()
    assert counted == [4 * len(LENGTHS)]
    monkeypatch.setattr(noise, "NOISE_WORDS", 2 * 128 * 23)
    assert same(whole, decode())
    assert counted[1:] == [128] * 4 * (TOKENS // 2)


def test_a_renewed_model_reads_again_what_was_sampled(decode: Decode) -> None:
    renewed = decode(renewals=TOKENS - 1)
    assert same(renewed, decode())
    assert renewed.versions[0].tolist() == list(range(TOKENS))
    later = renewed.versions[chunks_of_others()]
    assert set(later.flatten().tolist()) == {TOKENS - 1}


def chunks_of_others() -> list[int]:
    """The samples of all chunks but the first."""
    _, *others = chunks(LENGTHS, SETTINGS.n)
    return [SETTINGS.n * prompt for chunk in others for prompt in chunk.prompts]
