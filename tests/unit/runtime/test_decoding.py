"""Chunks of samples that are decoded side by side are what each is alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rpeg import runtime as rt
from rpeg.runtime.engine import decoding
from rpeg.runtime.engine.decoder import Decoder
from rpeg.runtime.engine.decoding import Completions, Decoding, length_class
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

    def decoded(settings: Sampling = SETTINGS, renewals: int = 0) -> Completions:
        made = iter([Decoder(model.shape, weights, torch.float32, k + 1) for k in range(renewals)])
        first = Decoder(model.shape, weights, torch.float32, 0)
        settled = Decoding(first, settings, model.tokenizer, banned, lambda: next(made, None))
        return settled.run(ids, torch.arange(len(ids)))

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
def test_chunks_are_the_same_alone_and_side_by_side(
    decode: Decode, monkeypatch: pytest.MonkeyPatch, settings: Sampling
) -> None:
    together = decode(settings)
    assert len({length_class(k) for k in LENGTHS}) == 2
    assert 0 < together.finished.sum() < len(together.finished)
    assert together.lengths.unique().numel() > 1
    monkeypatch.setattr(decoding, "SIDE_BY_SIDE", 1)
    assert same(together, decode(settings))
    monkeypatch.setattr(decoding, "SIDE_BY_SIDE", 3)
    assert same(together, decode(settings))


def test_large_logits_are_chosen_from_chunk_by_chunk(
    decode: Decode, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []
    choose = decoding.choose
    monkeypatch.setattr(decoding, "choose", lambda p, n: counted.append(len(p)) or choose(p, n))
    together = decode()
    assert set(counted) == {4 * decoding.CHUNK}
    counted.clear()
    monkeypatch.setattr(decoding, "BLOCK", 23 * decoding.CHUNK)
    assert same(together, decode())
    assert set(counted) == {decoding.CHUNK}


def test_all_chunks_go_on_under_newer_weights(decode: Decode) -> None:
    renewed = decode(renewals=TOKENS)
    assert same(renewed, decode())
    assert renewed.versions.tolist() == [list(range(TOKENS))] * len(renewed.tokens)
