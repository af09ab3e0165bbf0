"""Models as functions of their weights, held to Hugging Face's own forward pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rpeg.interp.network import VALUE_HEAD, Network, initial_tensors
from rpeg.interp.rectangle import Rectangle
from rpeg.runtime.models.model_source import ModelSource
from rpeg.runtime.trajectories import Demos, Row
from tests.unit.interp.pipelines import FAMILIES, write_model

DEMOS = Demos((Row("12=", completion="3"), Row("4=", completion="5678")), ordinals=torch.arange(2))


def hugging_face(source: ModelSource, tensors: dict[str, Tensor]) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(source.folder)).eval()
    model.load_state_dict(tensors, strict=False)
    return model


@pytest.mark.parametrize("family", FAMILIES)
def test_log_probs_and_entropies(family: str, tmp_path: Path) -> None:
    source = ModelSource(write_model(tmp_path / "m", **FAMILIES[family]), seed=3)
    tensors = initial_tensors(source)
    model, rows = hugging_face(source, tensors), Rectangle.of(DEMOS, source.tokenizer)
    out = Network(source).policy(tensors, rows)
    assert out.mask.sum(dim=1).tolist() == [2, 5]  # the end token counts
    for row, demo in enumerate(DEMOS.rows):
        prompt = source.tokenizer.encode(demo.prompt)
        completion = source.tokenizer.encode_completion(demo.completion or "")
        with torch.no_grad():
            logits = model(torch.tensor([prompt + completion])).logits[0, len(prompt) - 1 : -1]
        logits[:, source.tokenizer.pad_id] = float("-inf")
        p = torch.distributions.Categorical(logits=logits)
        k = len(completion)
        torch.testing.assert_close(out.logprob[row, :k], p.log_prob(torch.tensor(completion)))
        torch.testing.assert_close(out.entropy[row, :k], p.entropy())
        assert not out.logprob[row, k:].any()


@pytest.mark.parametrize("family", FAMILIES)
def test_double_precision_all_the_way(family: str, tmp_path: Path) -> None:
    """A derivative by a small difference: one rounding to float32 on the way would drown it."""
    source = ModelSource(write_model(tmp_path / "m", **FAMILIES[family]), seed=3)
    tensors = initial_tensors(source, torch.float64)
    network, rows = Network(source, torch.float64), Rectangle.of(DEMOS, source.tokenizer)
    name = "model.layers.0.mlp.up_proj.weight"
    weight = tensors[name].requires_grad_()
    total = network.policy(tensors, rows).logprob.sum()
    (gradient,) = torch.autograd.grad(total, weight)
    step = 1e-6 * gradient.detach() / gradient.norm()
    moved = network.policy({**tensors, name: weight + step}, rows).logprob.sum() - total
    assert float(moved.detach() / 1e-6) == pytest.approx(float(gradient.norm()), rel=1e-5)


def test_log_probs_are_taken_at_the_temperature(tmp_path: Path) -> None:
    source = ModelSource(write_model(tmp_path / "m"), seed=3)
    tensors, network = initial_tensors(source), Network(source)
    rows = Rectangle.of(DEMOS, source.tokenizer)
    warm = Rectangle(rows.ids, rows.starts, rows.tokens, rows.mask, temperature=2.0)
    logits = rows.predicting(network.logits(tensors, rows.ids)) / 2.0
    expected = logits.log_softmax(-1).gather(-1, rows.tokens[..., None])[..., 0] * rows.mask
    torch.testing.assert_close(network.policy(tensors, warm).logprob, expected)


def test_a_critic_reads_the_state_before_each_token(tmp_path: Path) -> None:
    source = ModelSource(write_model(tmp_path / "m"), seed=3, critic=True)
    tensors = {**initial_tensors(source), VALUE_HEAD: torch.linspace(-1, 1, 16).unsqueeze(0)}
    rows = Rectangle.of(DEMOS, source.tokenizer)
    out = Network(source).critic(tensors, rows)
    model = hugging_face(source, {k: v for k, v in tensors.items() if k != VALUE_HEAD}).model
    with torch.no_grad():
        state = model(torch.tensor([source.tokenizer.encode("4=")])).last_hidden_state[0, -1]
    torch.testing.assert_close(out.values[1, 0], tensors[VALUE_HEAD][0] @ state)
    assert out.values[0, 2:].tolist() == [0.0, 0.0, 0.0]


def test_making_a_network_draws_nothing(tmp_path: Path) -> None:
    source = ModelSource(write_model(tmp_path / "m"), seed=3)
    before = torch.random.get_rng_state()
    Network(source)
    assert torch.equal(before, torch.random.get_rng_state())


def test_two_heads_read_one_trunk(tmp_path: Path) -> None:
    source = ModelSource(write_model(tmp_path / "m"), seed=3, two_heads=True)
    tensors, network = initial_tensors(source), Network(source)
    alone = ModelSource(source.folder, seed=3)
    assert set(tensors) == {*initial_tensors(alone), VALUE_HEAD}
    tensors[VALUE_HEAD] = torch.linspace(-1, 1, source.shape.hidden).unsqueeze(0)
    for tensor in tensors.values():
        tensor.requires_grad_()
    rows = Rectangle.of(DEMOS, source.tokenizer)
    out = network.actor_critic(tensors, rows)
    assert torch.equal(out.logprob, network.policy(tensors, rows).logprob)
    assert torch.equal(out.values, network.critic(tensors, rows).values)
    (out.logprob.sum() + out.values.sum()).backward()
    trunk = tensors["model.layers.0.mlp.down_proj.weight"].grad
    apart = torch.autograd.grad(
        network.policy(tensors, rows).logprob.sum(), tensors["model.layers.0.mlp.down_proj.weight"]
    )[0]
    assert trunk is not None and not torch.allclose(trunk, apart), "both losses reach the trunk"
