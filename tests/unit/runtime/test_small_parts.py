"""Schedules, logits, nucleus sampling, stop strings, the trajectory buffer."""

from __future__ import annotations

import pytest
import torch

from rpeg.runtime.engine.decoding import chunks, length_class
from rpeg.runtime.engine.embedded import cut
from rpeg.runtime.engine.sampling import choose, distribution
from rpeg.runtime.groups import Groups
from rpeg.runtime.layout import AdamW
from rpeg.runtime.numerics.logits import VocabShard
from rpeg.runtime.schedule import learning_rate


@pytest.mark.parametrize(
    ("settings", "rates"),
    [
        (AdamW(lr=1.0), [1.0, 1.0, 1.0, 1.0]),
        (AdamW(lr=1.0, warmup=2), [0.5, 1.0, 1.0, 1.0]),
        (AdamW(lr=2.0, schedule="linear"), [2.0, 1.5, 1.0, 0.5]),
        (AdamW(lr=1.0, schedule="linear", warmup=2), [0.5, 1.0, 1.0, 0.5]),
        (AdamW(lr=1.0, schedule="cosine"), [1.0, 0.853553, 0.5, 0.146447]),
    ],
)
def test_learning_rates(settings: AdamW, rates: list[float]) -> None:
    got = [learning_rate(settings, step, horizon=4) for step in range(4)]
    assert got == pytest.approx(rates, abs=1e-6)
    if settings.schedule != "constant":
        assert learning_rate(settings, 9, horizon=4) == 0.0


def test_logprobs_and_entropies_match_torch_and_give_padding_nothing(groups: Groups) -> None:
    logits = torch.randn(6, 8, dtype=torch.float64).float().requires_grad_()
    targets = torch.tensor([1, 2, 4, 4, 3, 1])
    shard = VocabShard(groups.tp, width=8, vocab=5, pad_id=0)
    logprob, entropy = shard.logprob(logits, targets, 0.5)
    allowed = torch.distributions.Categorical(logits=logits[..., 1:5] / 0.5)
    torch.testing.assert_close(logprob, allowed.log_prob(targets - 1))
    torch.testing.assert_close(entropy, allowed.entropy())
    (gradient,) = torch.autograd.grad((logprob + entropy).sum(), logits)
    (wanted,) = torch.autograd.grad(
        (allowed.log_prob(targets - 1) + allowed.entropy()).sum(), logits
    )
    torch.testing.assert_close(gradient, wanted)
    assert gradient[..., 0].abs().max() == gradient[..., 5:].abs().max() == 0


def test_nucleus_keeps_the_smallest_set_that_reaches_top_p() -> None:
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    none = torch.zeros(4).bool()
    kept = distribution(logits, 1.0, 0.6, none).exp()
    torch.testing.assert_close(kept, torch.tensor([[0.625, 0.375, 0.0, 0.0]]))
    banned = torch.tensor([True, False, False, False])
    rest = distribution(logits, 1.0, 1.0, banned).exp()
    torch.testing.assert_close(rest, torch.tensor([[0.0, 0.6, 0.3, 0.1]]))
    tokens, logprobs = choose(rest.log(), None)
    assert tokens.tolist() == [[1]]
    torch.testing.assert_close(logprobs, torch.tensor([[0.6]]).log())


def test_chunks_follow_the_prompt_alone() -> None:
    assert [length_class(k) for k in (1, 8, 9, 100)] == [8, 8, 16, 128]
    got = list(chunks([3, 40, 5, 7], n=64))
    assert [(chunk.prompts, chunk.width) for chunk in got] == [([0, 2], 8), ([3], 8), ([1], 64)]


def test_text_ends_before_the_first_stop_string() -> None:
    assert cut("12;3#4", ("#", ";")) == "12"
    assert cut("12", ("#",)) == "12"
