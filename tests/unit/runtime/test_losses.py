"""Loss functions against values worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rpeg.runtime import losses
from rpeg.runtime.losses import Totals
from rpeg.runtime.losses.distill import Divergence

MASK = torch.tensor([[1, 1, 0], [1, 0, 0]]).bool()


def log(*rows: list[float]) -> Tensor:
    return torch.tensor(rows).log()


def gradient(loss: Tensor, x: Tensor) -> Tensor:
    (g,) = torch.autograd.grad(loss.sum(), x)
    return g


def test_ppo_clip_clips_each_side_and_only_when_it_helps() -> None:
    old = log([0.5, 0.5, 0.5], [0.5, 0.5, 0.5])
    new = log([0.75, 0.55, 0.9], [0.25, 0.5, 0.5])
    advantages = torch.tensor([2.0, -1.0])
    loss = losses.ppo_clip(new, advantages, old, MASK, clip_low=0.2, clip_high=0.3)
    # Ratios 1.5 (clipped to 1.3) and 1.1 in the first, 0.5 (clipped to 0.8) in the second row.
    torch.testing.assert_close(loss, torch.tensor([[-2.6, -2.2, 0], [0.8, 0, 0]]))
    fraction = losses.clip_fraction(new, advantages, old, MASK, clip_low=0.2, clip_high=0.3)
    torch.testing.assert_close(fraction, torch.tensor([[1.0, 0, 0], [1.0, 0, 0]]))


def test_gspo_ratio_is_the_geometric_mean_and_reaches_every_token() -> None:
    new = log([0.8, 0.2, 0.5]).requires_grad_()
    old = log([0.4, 0.4, 0.5])
    mask = torch.tensor([[1, 1, 0]]).bool()
    ratio = losses.policy_ratio(new, old, mask, "sequence")
    torch.testing.assert_close(ratio, torch.tensor([[1.0]]))
    loss = losses.ppo_clip(
        new, torch.tensor([3.0]), old, mask, clip_low=0.2, clip_high=0.2, ratio="sequence"
    )
    torch.testing.assert_close(loss.detach(), torch.tensor([[-3.0, -3.0, 0.0]]))
    torch.testing.assert_close(gradient(loss, new), torch.tensor([[-3.0, -3.0, 0.0]]))


def test_cispo_keeps_the_gradient_of_clipped_tokens() -> None:
    new = log([0.9, 0.5, 0.5], [0.5, 0.5, 0.5]).requires_grad_()
    old = log([0.3, 0.5, 0.5], [0.5, 0.5, 0.5])
    loss = losses.cispo(new, torch.tensor([1.0, -1.0]), old, MASK, clip_high=1.0)
    expected = torch.tensor([[-2.0, -1.0, 0.0], [1.0, 0.0, 0.0]])
    torch.testing.assert_close(gradient(loss, new), expected)


def test_policy_gradient_weighs_without_differentiating_the_weight() -> None:
    new = log([0.5, 0.5, 0.5], [0.5, 0.5, 0.5]).requires_grad_()
    weight = torch.full((2, 3), 0.5) * new.exp() * 2
    loss = losses.policy_gradient(new, torch.tensor([4.0, 1.0]), MASK, weight=weight)
    expected = torch.tensor([[-2.0, -2.0, 0.0], [-0.5, 0.0, 0.0]])
    torch.testing.assert_close(gradient(loss, new), expected)


@pytest.mark.parametrize(
    ("estimator", "value"),
    [("k1", math.log(2)), ("k2", math.log(2) ** 2 / 2), ("k3", 0.5 - 1 + math.log(2))],
)
def test_kl_estimators(estimator: losses.kl.Estimator, value: float) -> None:
    new, ref = log([0.5, 0.5, 0.1]), log([0.25, 0.5, 0.9])
    mask = torch.tensor([[1, 1, 0]]).bool()
    loss = losses.kl_loss(new, ref, mask, coef=2.0, estimator=estimator)
    torch.testing.assert_close(loss, torch.tensor([[2 * value, 0.0, 0.0]]))


@given(
    p=st.lists(st.floats(0.05, 1.0), min_size=4, max_size=4),
    q=st.lists(st.floats(0.05, 1.0), min_size=4, max_size=4),
)
def test_estimators_and_distillation_give_the_exact_divergence_in_expectation(
    p: list[float], q: list[float]
) -> None:
    """Sum over the vocabulary of p x per-token value: k1, k3 and reverse_kl are unbiased."""
    student = torch.tensor(p, dtype=torch.float64).log_softmax(0)
    teacher = torch.tensor(q, dtype=torch.float64).log_softmax(0)
    weight, ones = student.exp(), torch.ones(4)
    reverse = (weight * (student - teacher)).sum()
    forward = (teacher.exp() * (teacher - student)).sum()
    for value, exact in [
        (losses.kl_loss(student, teacher, ones, coef=1.0, estimator="k1"), reverse),
        (losses.kl_loss(student, teacher, ones, coef=1.0, estimator="k3"), reverse),
        (losses.distill(student, teacher, ones, divergence="reverse_kl"), reverse),
        (losses.distill(student, teacher, ones, divergence="forward_kl"), forward),
    ]:
        torch.testing.assert_close((weight * value).sum(), exact)


@given(logits=st.lists(st.floats(-2, 2), min_size=3, max_size=3))
def test_distillation_gradients_are_the_exact_ones_in_expectation(logits: list[float]) -> None:
    teacher = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64).log()
    x = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
    student = x.log_softmax(0)
    exact: dict[Divergence, Tensor] = {
        "reverse_kl": (student.exp() * (student - teacher)).sum(),
        "forward_kl": (teacher.exp() * (teacher - student)).sum(),
    }
    for divergence, value in exact.items():
        (wanted,) = torch.autograd.grad(value, x, retain_graph=True)
        per_token = losses.distill(student, teacher, torch.ones(3), divergence=divergence)
        expected_loss = (student.detach().exp() * per_token).sum()
        (got,) = torch.autograd.grad(expected_loss, x, retain_graph=True)
        torch.testing.assert_close(got, wanted)


def test_far_apart_policies_leave_finite_losses_and_gradients() -> None:
    """Ratios of e^100 are infinite in float32: they count as e^20."""
    new = torch.tensor([[100.0, -100.0]]).requires_grad_()
    old, mask = torch.zeros(1, 2), torch.ones(1, 2).bool()
    for advantage, expected in [(1.0, [-1.2, 0.0]), (-1.0, [math.exp(20), 0.8])]:
        loss = losses.ppo_clip(
            new, torch.tensor([advantage]), old, mask, clip_low=0.2, clip_high=0.2
        )
        torch.testing.assert_close(loss.detach(), torch.tensor([expected]), atol=1e-6, rtol=1e-6)
        assert gradient(loss, new).tolist() == [[0.0, 0.0]]
    k3 = losses.kl_loss(new, old, mask, coef=1.0)
    # d = 100: e^-100 - 1 + 100; d = -100, cut to -20: e^20 - 1 - 20.
    torch.testing.assert_close(k3.detach(), torch.tensor([[99.0, math.exp(20) - 21]]))
    assert gradient(k3, new).tolist() == [[1.0, 0.0]]
    forward = losses.distill(old, new.detach(), mask, divergence="forward_kl")
    assert bool(forward.isfinite().all())


def test_dpo_and_reward_model_by_hand() -> None:
    mask = torch.tensor([[1, 1], [1, 0]]).bool()
    new, ref = log([0.5, 0.5], [0.25, 0.9]), log([0.25, 0.25], [0.5, 0.1])
    # d = 2 log 2 chosen, -log 2 rejected: sigmoid(3 log 2) = 8 / 9.
    torch.testing.assert_close(
        losses.dpo(new, ref, mask, beta=1.0), torch.tensor([math.log(9 / 8)])
    )
    # A tenth of the labels is wrong: sigmoid(-3 log 2) = 1 / 9 counts for a tenth.
    torch.testing.assert_close(
        losses.dpo(new, ref, mask, beta=1.0, label_smoothing=0.1),
        torch.tensor([0.9 * math.log(9 / 8) + 0.1 * math.log(9)]),
    )
    scores = torch.tensor([math.log(3), 0.0, 1.0, 1.0])
    # sigmoid(log 3) = 3 / 4, sigmoid(0) = 1 / 2.
    torch.testing.assert_close(
        losses.reward_model(scores), torch.tensor([math.log(4 / 3), math.log(2)])
    )
    torch.testing.assert_close(
        losses.reward_model(scores, margin=math.log(3)), torch.tensor([math.log(2), math.log(4)])
    )
    with pytest.raises(ValueError, match="3 rows"):
        losses.reward_model(scores[:3])


def test_jensen_shannon_by_hand_and_its_bounds() -> None:
    student, teacher = log([1.0, 1e-30]), log([1e-30, 1.0])
    mask = torch.ones(1).bool()
    # Disjoint distributions: each is log 2 away from the mixture of both.
    torch.testing.assert_close(
        losses.divergence(student, teacher, mask), torch.tensor([math.log(2)])
    )
    assert losses.divergence(student, student, mask, beta=0.3).item() == pytest.approx(0, abs=1e-6)
    with pytest.raises(ValueError, match="forward KL"):
        losses.divergence(student, teacher, mask, beta=2.0)


def test_value_loss_takes_the_worse_of_clipped_and_unclipped() -> None:
    values = torch.tensor([[1.0, 3.0]])
    loss = losses.value_loss(
        values, torch.zeros(1, 2), torch.tensor([[1.0, 1.0]]), torch.ones(1, 2), clip=0.5, coef=2.0
    )
    torch.testing.assert_close(loss, torch.tensor([[1.0, 9.0]]))
    towards = losses.value_loss(
        torch.tensor([[0.0]]), torch.zeros(1, 1), torch.ones(1, 1), torch.ones(1, 1), clip=0.5
    )
    torch.testing.assert_close(towards, torch.tensor([[0.125]]))


def test_entropy_and_cross_entropy_signs() -> None:
    mask = torch.tensor([[1, 0]]).bool()
    torch.testing.assert_close(
        losses.entropy_bonus(torch.tensor([[2.0, 5.0]]), mask, coef=0.1),
        torch.tensor([[-0.2, 0.0]]),
    )
    torch.testing.assert_close(
        losses.cross_entropy(torch.tensor([[-2.0, -5.0]]), mask), torch.tensor([[2.0, 0.0]])
    )


@pytest.mark.parametrize(
    ("agg", "expected"),
    [
        ("token_mean", [[1 / 3, 1 / 3, 0], [1 / 3, 0, 0]]),
        ("seq_mean_token_mean", [[1 / 4, 1 / 4, 0], [1 / 2, 0, 0]]),
        ("seq_mean_token_sum", [[1 / 2, 1 / 2, 0], [1 / 2, 0, 0]]),
        (("constant", 8), [[1 / 16, 1 / 16, 0], [1 / 16, 0, 0]]),
    ],
)
def test_aggregations(agg: losses.Aggregation, expected: list[list[float]]) -> None:
    weights = losses.token_weights(MASK, agg, Totals(tokens=3, sequences=2))
    torch.testing.assert_close(weights, torch.tensor(expected))


def test_unknown_aggregation_names_the_choices() -> None:
    with pytest.raises(ValueError, match="seq_mean_token_sum"):
        losses.token_weights(MASK, "mean", Totals(3, 2))


@given(split=st.integers(0, 5), agg=st.sampled_from(["token_mean", "seq_mean_token_mean"]))
def test_weights_do_not_depend_on_the_split_into_shares(split: int, agg: str) -> None:
    mask = torch.arange(4) < torch.tensor([[1], [4], [2], [3], [0]])
    totals = Totals(tokens=10, sequences=4)
    whole = losses.token_weights(mask, agg, totals)
    shares = [losses.token_weights(part, agg, totals) for part in (mask[:split], mask[split:])]
    torch.testing.assert_close(torch.cat(shares), whole)
    torch.testing.assert_close(whole.sum(), torch.tensor(1.0))
