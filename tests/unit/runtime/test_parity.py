"""Megatron-Core's trainer, the embedded engine and Hugging Face's models say the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from rpeg import runtime as rt
from rpeg.runtime import losses
from rpeg.runtime.batches.examples import Examples, ModelInputs
from rpeg.runtime.groups import Groups
from rpeg.runtime.interfaces import NamedTensors
from rpeg.runtime.models.export import export_model
from rpeg.runtime.models.model_source import ModelSource
from rpeg.runtime.run import Run
from rpeg.runtime.trajectories import Prompts, Row, Trajectories

DIGITS = Path(__file__).parents[3] / "models" / "tiny-qwen3-digits"

SMALL = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 23,
    "max_position_embeddings": 128,
    "initializer_range": 0.2,
    "pad_token_id": 0,
    "eos_token_id": 1,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "qwen2": {"model_type": "qwen2", "tie_word_embeddings": False, "rope_theta": 10000.0},
    "qwen2-tied": {"model_type": "qwen2", "tie_word_embeddings": True, "rope_theta": 1e6},
    "qwen3": {"model_type": "qwen3", "tie_word_embeddings": False, "head_dim": 16},
    "qwen3-tied": {"model_type": "qwen3", "tie_word_embeddings": True, "head_dim": 16},
    "llama": {"model_type": "llama", "tie_word_embeddings": False},
    "llama3-tied": {
        "model_type": "llama",
        "tie_word_embeddings": True,
        "rope_theta": 500000.0,
        "rope_scaling": LLAMA3,
    },
}


@pytest.fixture(params=CONFIGS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A model folder without weights, each family in turn."""
    path = tmp_path / request.param
    path.mkdir()
    config = SMALL | CONFIGS[request.param]
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (path / "tokenizer.json").symlink_to(DIGITS / "tokenizer.json")
    return path


def trainer(run: Run, groups: Groups, source: Path, **settings: Any) -> rt.Trainer:
    defaults: dict[str, Any] = {
        "dtype": "fp32",
        "optimizer": rt.AdamW(lr=3e-4, grad_clip=0.5),
        "horizon": 10,
    }
    name = settings.pop("name", "actor")
    return rt.Trainer(
        run, name, role="policy", source=str(source), groups=groups, **(defaults | settings)
    )


def hugging_face(folder: Path, weights: NamedTensors) -> torch.nn.Module:
    config = transformers.AutoConfig.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_config(config)
    missing, unexpected = model.load_state_dict(dict(weights), strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}
    model.tie_weights()
    return model.eval()  # type: ignore[no-any-return]


def hf_logprob(model: torch.nn.Module, y: Trajectories) -> Tensor:
    """One row at a time, without padding; padding tokens have no probability."""
    rows = []
    for prompt, tokens in zip(y.prompt_ids, y.tokens.tolist(), strict=True):
        logits = model(torch.tensor([[*prompt, *tokens]])).logits[0, len(prompt) - 1 : -1]
        logits = (logits / (y.temperature or 1.0)).index_fill(1, torch.tensor([0]), -torch.inf)
        rows.append(logits.log_softmax(-1).gather(1, torch.tensor(tokens)[:, None])[:, 0])
    return torch.where(y.mask, torch.stack(rows), 0.0)


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, atol=1e-5, rtol=0)


def engine_of(run: Run, model: rt.Trainer) -> rt.EmbeddedEngine:
    engine = rt.EmbeddedEngine(run, model, groups=model.groups)
    register = rt.LatestWeights(run, model)
    register.publish(model)
    engine.swap_weights(register)
    return engine


def prompts(*texts: str, first: int = 0) -> Prompts:
    return Prompts(tuple(Row(t) for t in texts), torch.arange(first, first + len(texts)))


def test_each_family_agrees_in_training_and_sampling(
    run: Run, groups: Groups, folder: Path, trajectories: Callable[[int], Trajectories]
) -> None:
    model = trainer(run, groups, folder)
    weights = dict(model.named_tensors())
    source = ModelSource(folder, run.seed)
    assert set(weights) == {name for name, _ in source.shape.tensors()}
    assert all(torch.equal(weights[name], source.read(name)) for name in weights)

    reference = hugging_face(folder, model.named_tensors())
    with torch.no_grad():
        y = trajectories(12)
        close(model.logprob(y), hf_logprob(reference, y))
        engine = engine_of(run, model)
        sampled, logprobs = engine.generate(
            prompts("12", "3+4*5=", "#"), n=3, max_tokens=7, temperature=0.8
        )
        close(logprobs, model.logprob(sampled))
        close(logprobs, hf_logprob(reference, sampled))
    assert sampled.tokens[sampled.mask].min() > 0, "padding was sampled"


def test_updates_are_those_of_plain_pytorch(
    run: Run, groups: Groups, folder: Path, trajectories: Callable[[int], Trajectories]
) -> None:
    """Two minibatches a step, a KL term, clipping at work; in uneven micro-batches."""
    model = trainer(run, groups, folder, micro_batch=rt.MicroBatch(tokens=40))
    reference = hugging_face(folder, model.named_tensors())
    optimizer = torch.optim.AdamW(reference.parameters(), lr=3e-4, weight_decay=0.0)
    y = trajectories(12)
    with torch.no_grad():
        old = model.logprob(y)
    anchor, advantages = old - 0.1, torch.linspace(-2, 2, 12)
    terms = (
        rt.ppo_clip(y, advantages, old, clip_low=0.2, clip_high=0.2),
        rt.kl_loss(y, anchor, coef=0.5),
    )
    for _ in range(2):
        model.update(*terms, agg="token_mean", minibatches=2, shuffle=False)
        norms = []
        for rows in (slice(0, 6), slice(6, 12)):
            part = y.select(torch.arange(12)[rows])
            new = hf_logprob(reference, part)
            loss = losses.ppo_clip(
                new, advantages[rows], old[rows], part.mask, clip_low=0.2, clip_high=0.2
            ) + losses.kl_loss(new, anchor[rows], part.mask, coef=0.5)
            optimizer.zero_grad()
            (loss.sum() / part.mask.sum()).backward()
            norms.append(float(torch.nn.utils.clip_grad_norm_(reference.parameters(), 0.5)))
            optimizer.step()
        assert min(norms) > 0.5, "the test means to clip"
        assert run.metrics.merge()["grad_norm"] == pytest.approx(sum(norms) / 2, rel=1e-5)
    wanted = dict(reference.named_parameters())
    # One number for all weights: key biases have no gradient but rounding, and Adam inflates it.
    gaps = [(tensor - wanted[name]).flatten() for name, tensor in model.named_tensors()]
    assert float(torch.cat(gaps).square().mean().sqrt()) < 1e-6


def test_rows_without_advantage_are_left_out_exactly(
    run: Run, groups: Groups, trajectories: Callable[[int], Trajectories]
) -> None:
    y = trajectories(12)
    advantages = torch.linspace(-2, 2, 12).masked_fill(torch.arange(12) % 12 < 8, 0.0)
    gradient = rt.policy_gradient(y, advantages)
    assert gradient.active().tolist() == [False] * 8 + [True] * 4
    nothing = rt.kl_loss(y, torch.zeros(y.tokens.shape), coef=0.0)
    lean, full = (trainer(run, groups, DIGITS, name=name) for name in ("lean", "full"))
    for _ in range(3):
        lean.update(gradient, agg="seq_mean_token_mean", minibatches=2)
        full.update(gradient, nothing, agg="seq_mean_token_mean", minibatches=2)
    pairs = zip(lean.named_tensors(), full.named_tensors(), strict=True)
    gaps = [(a - b).flatten() for (_, a), (_, b) in pairs]
    assert float(torch.cat(gaps).square().mean().sqrt()) < 1e-6


def test_greedy_is_hugging_faces_and_ends_at_the_end(run: Run, groups: Groups) -> None:
    model = trainer(run, groups, DIGITS)
    reference = hugging_face(DIGITS, model.named_tensors())
    y, _ = engine_of(run, model).generate(
        prompts("12", "3456=", "7"), n=1, max_tokens=12, temperature=0.0
    )
    for ids, tokens, length in zip(y.prompt_ids, y.tokens, y.sampled_lengths, strict=True):
        wanted = reference.generate(
            torch.tensor([ids]), max_new_tokens=12, do_sample=False, suppress_tokens=[0]
        )[0, len(ids) :]
        assert tokens[:length].tolist() == wanted.tolist()
    ended = torch.tensor([1 in row for row in y.tokens.tolist()])
    assert torch.equal(y.finished, ended)


def test_a_sample_does_not_depend_on_its_batch(run: Run, groups: Groups) -> None:
    engine = engine_of(run, trainer(run, groups, DIGITS))
    settings: dict[str, Any] = {"n": 4, "max_tokens": 8, "temperature": 1.0, "seed": 5}
    texts = [str(k) * (k % 9 + 1) for k in range(1, 60)] + ["1" * 20]
    whole, logprobs = engine.generate(prompts(*texts), **settings)
    alone, alone_logprobs = engine.generate(prompts(texts[41], first=41), **settings)
    rows = slice(41 * 4, 42 * 4)
    assert torch.equal(whole.tokens[rows], alone.tokens)
    assert torch.equal(logprobs[rows], alone_logprobs), "the bits differ"
    assert len({tuple(row) for row in whole.tokens[rows].tolist()}) > 1


def test_samples_follow_the_models_distribution(run: Run, groups: Groups) -> None:
    engine = engine_of(run, trainer(run, groups, DIGITS))
    y, logprobs = engine.generate(prompts("123="), n=4096, max_tokens=1, temperature=1.0)
    expected = torch.zeros(23).scatter(0, y.tokens[:, 0], logprobs[:, 0].exp())
    counts = y.tokens[:, 0].bincount(minlength=23)
    assert float(expected.sum()) == pytest.approx(1.0, abs=1e-4)
    chi_square = ((counts - 4096 * expected).square() / (4096 * expected))[1:].sum()
    assert float(chi_square) < 46.8, "21 degrees of freedom: exceeded once in a thousand"


def test_stop_strings_end_completions(run: Run, groups: Groups) -> None:
    engine = engine_of(run, trainer(run, groups, DIGITS))
    y, _ = engine.generate(prompts("12"), n=64, max_tokens=12, temperature=1.0, stop=("3", "45"))
    decode = engine.tokenizer.decode
    for tokens, length, text in zip(
        y.tokens.tolist(), y.sampled_lengths.tolist(), y.texts, strict=True
    ):
        said = decode(tokens[:length])
        assert "3" not in text and "45" not in text
        assert "3" not in decode(tokens[: length - 1]), "went on after a stop string"
        assert said.startswith(text)
    assert any("3" in decode(row) for row in y.tokens.tolist())


def test_resuming_is_bitwise(
    run: Run, groups: Groups, trajectories: Callable[[int], Trajectories]
) -> None:
    y = trajectories(8)
    term = rt.policy_gradient(y, torch.linspace(-1, 1, 8))
    first = trainer(run, groups, DIGITS, name="first")
    first.update(term, agg="token_mean", minibatches=2)
    folder = run.folder.path / "saved"
    folder.mkdir(parents=True)
    first.save_shards(folder)
    first.update(term, agg="token_mean", minibatches=2)
    second = trainer(run, groups, DIGITS, name="second")
    second.load_shards(folder)
    assert second.updates == 1
    second.update(term, agg="token_mean", minibatches=2)
    pairs = zip(first.named_tensors(), second.named_tensors(), strict=True)
    assert all(torch.equal(a, b) for (_, a), (_, b) in pairs)


def test_initial_weights_are_those_before_step_0(
    run: Run, groups: Groups, trajectories: Callable[[int], Trajectories]
) -> None:
    y = trajectories(8)
    actor = trainer(run, groups, DIGITS)
    before = actor.logprob(y)
    actor.update(rt.policy_gradient(y, torch.ones(8)), agg="token_mean")
    reference = rt.FrozenModel(
        run, "ref", role="policy", source=rt.InitialWeights(actor), groups=groups, dtype="fp32"
    )
    assert torch.equal(reference.logprob(y), before)
    assert not torch.equal(actor.logprob(y), before)


def test_models_that_share_their_micro_batches(
    run: Run,
    groups: Groups,
    trajectories: Callable[[int], Trajectories],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    y = trajectories(8)
    actor = trainer(run, groups, DIGITS, micro_batch=rt.MicroBatch(seqs=3))
    reference = rt.FrozenModel(
        run,
        "ref",
        role="policy",
        source=rt.InitialWeights(actor),
        groups=groups,
        dtype="fp32",
        micro_batch=rt.MicroBatch(seqs=3),
    )
    actor.update(rt.policy_gradient(y, torch.ones(8)), agg="token_mean")
    models = (actor, reference)
    apart = [model.logprob(y) for model in models]
    assert not torch.equal(*apart)
    packed: list[Sequence[int]] = []
    pack = Examples.inputs

    def counting(self: Examples, rows: Sequence[int], multiple: int = 1) -> ModelInputs:
        packed.append(rows)
        return pack(self, rows, multiple)

    monkeypatch.setattr(Examples, "inputs", counting)
    together = rt.forward(y, *models)
    assert len(packed) == 3
    assert all(torch.equal(a, b) for a, b in zip(apart, together, strict=True))


def test_bf16_trains_float32_masters(
    run: Run, groups: Groups, trajectories: Callable[[int], Trajectories]
) -> None:
    y = trajectories(8)
    model = trainer(run, groups, DIGITS, dtype="bf16", optimizer=rt.AdamW(lr=1e-5))
    exact = trainer(run, groups, DIGITS, name="exact")
    torch.testing.assert_close(model.logprob(y), exact.logprob(y), atol=0.05, rtol=0)
    source = ModelSource(DIGITS, run.seed)
    name = "model.layers.1.mlp.down_proj.weight"
    masters = {tuple(m.tensor.shape): m.tensor for m in model._optimizer.masters()}
    master = masters[tuple(source.read(name).shape)]
    assert master.dtype == torch.float32
    for _ in range(4):
        model.update(rt.policy_gradient(y, torch.linspace(-1, 1, 8)), agg="token_mean")
    moved = dict(model.named_tensors())[name]
    assert moved.dtype == torch.bfloat16
    assert torch.equal(moved, master.bfloat16())
    assert not torch.equal(master, source.read(name)), "steps of 1e-5 were lost in bfloat16"


def test_demonstrations_are_learnt(run: Run, groups: Groups) -> None:
    from rpeg.runtime.trajectories import Demos

    rows = tuple(Row(f"{k}=", completion=f"{9 - k}") for k in range(4))
    demos = Demos(rows, torch.arange(4))
    model = trainer(run, groups, DIGITS, optimizer=rt.AdamW(lr=1e-2), horizon=30)
    before, tokens = model.demo_nll(demos)
    assert tokens.tolist() == [2, 2, 2, 2], "the end is trained too"
    for _ in range(25):
        model.update(rt.cross_entropy(demos), agg="token_mean")
    after, _ = model.demo_nll(demos)
    assert float(after.sum()) < 0.1 * float(before.sum())
    y, _ = engine_of(run, model).generate(prompts("0=", "3="), n=1, max_tokens=4, temperature=0.0)
    assert y.texts == ("9", "6") and y.finished.all()


def test_a_critic_learns_returns(
    run: Run, groups: Groups, trajectories: Callable[[int], Trajectories]
) -> None:
    y = trajectories(8)
    critic = rt.Trainer(
        run,
        "critic",
        role="value",
        source=rt.InitialWeights(trainer(run, groups, DIGITS)),
        groups=groups,
        dtype="fp32",
        optimizer=rt.AdamW(lr=3e-3),
        horizon=40,
    )
    assert critic.values(y).eq(0).all(), "a new head is zero"
    returns = rt.returns(y, torch.linspace(-1, 1, 8), gamma=0.9)
    for _ in range(40):
        term = rt.value_loss(y, returns, critic.values(y), clip=10.0)
        critic.update(term, agg="token_mean")
    values = critic.values(y)
    # Samples of one prompt share their first value: that much can't be explained.
    assert float((values - returns).square().sum() / returns.square().sum()) < 0.2

    weights = dict(critic.named_tensors())
    reference = hugging_face(DIGITS, ((k, v) for k, v in weights.items() if k != "score.weight"))
    hidden = reference.model(torch.tensor([[*y.prompt_ids[3], *y.tokens[3].tolist()]]))
    wanted = (hidden.last_hidden_state[0] @ weights["score.weight"].T)[:, 0]
    first, length = len(y.prompt_ids[3]) - 1, int(y.sampled_lengths[3])
    close(values[3, :length], wanted[first : first + length].detach())
    with pytest.raises(rt.RuntimeFailure, match="`critic` is a value, which has no log-probs"):
        critic.logprob(y)


def test_one_trunk_with_two_heads_learns_both(
    run: Run, groups: Groups, trajectories: Callable[[int], Trajectories], tmp_path: Path
) -> None:
    y = trajectories(8)
    settings: dict[str, Any] = {"groups": groups, "dtype": "fp32", "source": str(DIGITS)}
    ac = rt.Trainer(
        run, "ac", role="actor_critic", optimizer=rt.AdamW(lr=3e-3), horizon=30, **settings
    )
    alone = rt.FrozenModel(run, "alone", role="policy", **settings)
    before, zeros = rt.forward(y, ac, ac, asked=("logprob", "values"))
    close(before, alone.logprob(y))
    assert zeros.eq(0).all(), "a new head is zero"
    goals = torch.linspace(-1, 1, 8)
    returns = rt.returns(y, goals, gamma=0.9)
    for _ in range(30):
        pg = rt.policy_gradient(y, goals)
        vl = rt.value_loss(y, returns, ac.values(y), clip=10.0)
        ac.update(pg, vl, agg="token_mean")
    after, values = rt.forward(y, ac, ac, asked=("logprob", "values"))
    gained = (after - before).sum(dim=1)
    assert gained[goals > 0.2].min() > 0 > gained[goals < -0.2].max(), "the policy's head learns"
    # Samples of one prompt share their first value: that much can't be explained.
    assert float((values - returns).square().sum() / returns.square().sum()) < 0.25
    assert torch.equal(values, ac.values(y)) and torch.equal(after, ac.logprob(y))

    weights = dict(ac.named_tensors())
    reference = hugging_face(DIGITS, ((k, v) for k, v in weights.items() if k != "score.weight"))
    ids = torch.tensor([[*y.prompt_ids[3], *y.tokens[3].tolist()]])
    wanted = reference.model(ids).last_hidden_state[0] @ weights["score.weight"].T
    first, length = len(y.prompt_ids[3]) - 1, int(y.sampled_lengths[3])
    close(values[3, :length], wanted[first : first + length, 0].detach())

    export_model(ac, tmp_path / "out")
    left = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "out", output_loading_info=True
    )
    assert not left[1]["unexpected_keys"], "the language model leaves without the second head"
    close(left[0](ids).logits, reference(ids).logits)
