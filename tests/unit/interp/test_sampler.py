"""Sampling: from the model's distribution, alike whoever else is in the batch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rpeg.interp.network import Network, initial_tensors
from rpeg.interp.rectangle import Rectangle
from rpeg.interp.sampler import SamplingSettings, nucleus, sample
from rpeg.interp.values import Model, Weights
from rpeg.runtime.models.model_source import ModelSource
from rpeg.runtime.trajectories import Prompts, Row

SETTINGS = SamplingSettings(
    n=3, max_tokens=6, temperature=0.8, top_p=1.0, stop=(), run_seed=5, seed=1
)
PROMPTS = Prompts((Row("7="), Row("123="), Row("4=")), torch.tensor([10, 11, 12]))


@pytest.fixture(scope="module")
def weights(world_folder: Path) -> Weights:
    source = ModelSource(world_folder / "tiny", seed=0)
    model = Model("actor", "policy", Network(source), optim=None)
    return Weights(model, initial_tensors(source), version=4)


def test_sampled_log_probs_are_those_of_one_forward_pass(weights: Weights) -> None:
    y, logprobs = sample(weights, PROMPTS, SETTINGS)
    rows = Rectangle.of(y, weights.model.network.tokenizer)
    torch.testing.assert_close(logprobs, weights.model.outputs(weights.tensors, rows).logprob)
    assert y.ordinals.tolist() == [10, 10, 10, 11, 11, 11, 12, 12, 12]
    assert y.samples.tolist() == [0, 1, 2] * 3
    assert y.versions[y.mask].unique().tolist() == [4]
    assert not (y.tokens[y.mask] == weights.model.network.tokenizer.pad_id).any()


def test_completions_end_with_the_end_token_or_at_the_bound(weights: Weights) -> None:
    y, _ = sample(weights, PROMPTS, replace(SETTINGS, n=16, max_tokens=12))
    eos = weights.model.network.tokenizer.eos_ids
    last = [
        int(row[length - 1]) in eos for row, length in zip(y.tokens, y.sampled_lengths, strict=True)
    ]
    assert last == y.finished.tolist()
    assert 0 < sum(last) < len(last)
    assert all(length == 12 for length, end in zip(y.sampled_lengths, last, strict=True) if not end)


def test_a_sample_does_not_know_its_batch(weights: Weights) -> None:
    whole, _ = sample(weights, PROMPTS, SETTINGS)
    alone, _ = sample(weights, Prompts(PROMPTS.rows[2:], PROMPTS.ordinals[2:]), SETTINGS)
    assert torch.equal(whole.tokens[6:], alone.tokens)


@pytest.mark.parametrize("change", ["run_seed", "seed"])
def test_seeds_matter(weights: Weights, change: str) -> None:
    here, _ = sample(weights, PROMPTS, SETTINGS)
    there, _ = sample(weights, PROMPTS, replace(SETTINGS, **{change: 77}))
    assert not torch.equal(here.tokens, there.tokens)


def test_frequencies_are_the_probabilities(weights: Weights) -> None:
    prompt = Prompts(PROMPTS.rows[:1], PROMPTS.ordinals[:1])
    y, _ = sample(weights, prompt, replace(SETTINGS, n=4000, max_tokens=1))
    network = weights.model.network
    with torch.no_grad():
        logits = network.logits(weights.tensors, torch.tensor([y.prompt_ids[0]]))[0, -1]
    expected = (logits / SETTINGS.temperature).softmax(dim=-1)
    found = y.tokens[:, 0].bincount(minlength=network.vocab) / 4000
    assert float((found - expected).abs().max()) < 0.025  # three deviations at p = 1/2


def test_greedy_takes_the_most_probable_and_reports_the_models_log_prob(weights: Weights) -> None:
    y, logprobs = sample(weights, PROMPTS, replace(SETTINGS, temperature=0.0, n=1))
    rows = Rectangle.of(y, weights.model.network.tokenizer)
    logits = rows.predicting(weights.model.network.logits(weights.tensors, rows.ids))
    assert torch.equal(logits.argmax(dim=-1)[y.mask], y.tokens[y.mask])
    best = logits.log_softmax(dim=-1).amax(dim=-1)
    torch.testing.assert_close(logprobs[y.mask], best[y.mask])


def test_a_stop_string_ends_the_completion_and_is_cut_off(weights: Weights) -> None:
    y, _ = sample(weights, PROMPTS, replace(SETTINGS, stop=tuple("0123456789")))
    assert all(length < 6 for length in y.sampled_lengths[y.finished])
    assert not any(set(text) & set("0123456789") for text in y.texts)


def test_nucleus_keeps_the_token_that_crosses_the_bound() -> None:
    p = torch.tensor([[0.1, 0.5, 0.3, 0.1]])
    assert nucleus(p.log(), 0.6).exp().tolist()[0] == pytest.approx([0.0, 0.625, 0.375, 0.0])
    assert nucleus(p.log(), 0.45).exp().tolist()[0] == pytest.approx([0.0, 1.0, 0.0, 0.0])
    assert torch.equal(nucleus(p.log(), 1.0), p.log())
