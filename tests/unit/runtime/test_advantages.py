"""Advantages against values worked out by hand, and against slow definitions."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rpeg.runtime import advantages as adv

REWARDS = torch.tensor([1.0, 0.0, 0.0, 0.0, 2.0, 2.0, 2.0, 2.0])


def test_grpo_rloo_and_dr_grpo() -> None:
    grpo = adv.group_advantage(REWARDS, 4, baseline="mean", scale="std")
    torch.testing.assert_close(grpo[:4], torch.tensor([0.75, -0.25, -0.25, -0.25]) / (0.5 + 1e-6))
    assert grpo[4:].tolist() == [0.0] * 4
    dr = adv.group_advantage(REWARDS, 4, baseline="mean", scale="none")
    assert dr[:4].tolist() == [0.75, -0.25, -0.25, -0.25]
    rloo = adv.group_advantage(REWARDS, 4, baseline="leave_one_out", scale="none")
    torch.testing.assert_close(rloo[:4], torch.tensor([1.0, -1 / 3, -1 / 3, -1 / 3]))


@given(reward=st.floats(-10, 10, width=32), n=st.integers(2, 16))
def test_equal_rewards_give_exactly_nothing(reward: float, n: int) -> None:
    advantages = adv.group_advantage(torch.full((n,), reward), n, baseline="mean", scale="std")
    assert advantages.tolist() == [0.0] * n


def test_remax_takes_off_the_greedy_reward() -> None:
    got = adv.remax_advantage(torch.tensor([1.0, 0.0, 2.0, 5.0]), torch.tensor([0.5, 2.0]), 2)
    assert got.tolist() == [0.5, -0.5, 0.0, 3.0]
    with pytest.raises(ValueError, match="greedy"):
        adv.remax_advantage(torch.ones(4), torch.ones(2), 3)


def test_whitening_counts_responses_or_tokens() -> None:
    """Rewards 1 and -1 of 3 and 1 tokens: means 0 and 0.5, variances 2 and 1."""
    rewards, mask = torch.tensor([1.0, -1.0]), torch.tensor([[1, 1, 1], [1, 0, 0]]).bool()
    counts = adv.counts(rewards, mask, "responses")
    once = adv.whiten(rewards, torch.ones(2), adv.Moments.of(rewards, counts))
    torch.testing.assert_close(once, torch.tensor([1.0, -1.0]) / 2**0.5)
    counts = adv.counts(rewards, mask, "tokens")
    weighted = adv.whiten(rewards, torch.ones(2), adv.Moments.of(rewards, counts))
    torch.testing.assert_close(weighted, torch.tensor([0.5, -1.5]))


def test_groups_of_one_and_broken_groups() -> None:
    assert adv.group_advantage(torch.ones(2), 1, baseline="mean", scale="std").tolist() == [
        0.0,
        0.0,
    ]
    with pytest.raises(ValueError, match="at least 2"):
        adv.group_advantage(torch.ones(2), 1, baseline="leave_one_out", scale="none")
    with pytest.raises(ValueError, match="whole groups"):
        adv.group_advantage(torch.ones(3), 2, baseline="mean", scale="none")


def test_weighted_sum_checks_its_weights() -> None:
    total = adv.weighted_sum([torch.ones(2), torch.full((2,), 3.0)], [1.0, 0.5])
    assert total.tolist() == [2.5, 2.5]
    with pytest.raises(ValueError, match="2 rewards"):
        adv.weighted_sum([torch.ones(2), torch.ones(2)], [1.0])


def test_rewards_land_on_the_last_unmasked_token() -> None:
    mask = torch.tensor([[1, 1, 0], [1, 0, 1], [0, 0, 0]]).bool()
    spread = adv.at_last_token(torch.tensor([2.0, 3.0, 4.0]), mask)
    assert spread.tolist() == [[0, 2, 0], [0, 0, 3], [0, 0, 0]]
    assert adv.sum_tokens(spread, mask).tolist() == [2, 3, 0]


def test_kl_penalty_is_per_token_and_ignores_padding() -> None:
    mask = torch.tensor([[1, 1, 0]]).bool()
    policy = torch.tensor([[-1.0, -2.0, float("nan")]])
    reference = torch.tensor([[-1.5, -1.0, 0.0]])
    shaped = adv.kl_penalty(torch.tensor([1.0]), policy, reference, mask, coef=0.1)
    torch.testing.assert_close(shaped, torch.tensor([[-0.05, 1.1, 0.0]]))


def test_returns_discount_over_unmasked_tokens_only() -> None:
    mask = torch.tensor([[1, 0, 1, 1]]).bool()
    rewards = torch.tensor([[1.0, 9.0, 0.0, 4.0]])
    got = adv.returns(rewards, mask, gamma=0.5)
    torch.testing.assert_close(got, torch.tensor([[2.0, 0.0, 2.0, 4.0]]))


def slow_gae(rewards: Tensor, values: Tensor, gamma: float, lambda_: float) -> Tensor:
    """sum_l (gamma lambda)^l delta_{t+l}, written out for one sequence."""
    steps = len(rewards)
    ahead = torch.cat([values[1:], torch.zeros(1)])
    delta = rewards + gamma * ahead - values
    powers = [
        [(gamma * lambda_) ** (j - t) if j >= t else 0.0 for j in range(steps)]
        for t in range(steps)
    ]
    return torch.tensor(powers) @ delta


@given(
    gamma=st.floats(0, 1),
    lambda_=st.floats(0, 1),
    rewards=st.lists(st.floats(-1, 1, width=32), min_size=4, max_size=4),
    values=st.lists(st.floats(-1, 1, width=32), min_size=4, max_size=4),
)
def test_gae_is_the_sum_of_discounted_deltas(
    gamma: float, lambda_: float, rewards: list[float], values: list[float]
) -> None:
    r, v = torch.tensor(rewards), torch.tensor(values)
    wanted = slow_gae(r, v, gamma, lambda_)
    padded = [torch.cat([x, torch.full((2,), 7.0)])[None] for x in (r, v)]
    mask = torch.tensor([[1, 1, 1, 1, 0, 0]]).bool()
    got, targets = adv.gae(padded[0], padded[1], mask, gamma=gamma, lambda_=lambda_)
    torch.testing.assert_close(got[0, :4], wanted, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(targets[0, :4], wanted + v, atol=1e-5, rtol=1e-5)
    assert got[0, 4:].tolist() == targets[0, 4:].tolist() == [0, 0]


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=20))
def test_whitening_by_added_moments(xs: list[float]) -> None:
    field = torch.tensor(xs, dtype=torch.float64)[None]
    mask = torch.ones_like(field).bool()
    moments = adv.Moments.of(field, mask)
    assert moments.mean == pytest.approx(float(field.mean()), abs=1e-9)
    assert moments.variance == pytest.approx(float(field.var()), abs=1e-9)
    white = adv.whiten(field, mask, moments)
    assert float(white.mean()) == pytest.approx(0.0, abs=1e-6)


def test_importance_levels_and_modes() -> None:
    mask = torch.tensor([[1, 1, 0]]).bool()
    current = torch.tensor([[0.6, 0.1, 0.5]]).log()
    behaviour = torch.tensor([[0.2, 0.2, 0.1]]).log()
    token = adv.importance(current, behaviour, mask, cap=2.0)
    torch.testing.assert_close(token, torch.tensor([[2.0, 0.5, 0.0]]))
    masked = adv.importance(current, behaviour, mask, cap=2.0, mode="mask")
    torch.testing.assert_close(masked, torch.tensor([[0.0, 0.5, 0.0]]))
    banded = adv.importance(current, behaviour, mask, cap=4.0, floor=0.6, mode="mask")
    torch.testing.assert_close(banded, torch.tensor([[3.0, 0.0, 0.0]]))
    far = adv.importance(current + 100, behaviour, mask, mode="mask", level="sequence")
    assert far.tolist() == [[0.0, 0.0, 0.0]]
    sequence = adv.importance(current, behaviour, mask, level="sequence")
    torch.testing.assert_close(sequence, torch.tensor([[1.5, 1.5, 0.0]]))
