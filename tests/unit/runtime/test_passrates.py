"""Mean, standard error and pass@k of rewards."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch

from rpeg.runtime.passrates import pass_at_k, pass_rates


@pytest.mark.parametrize(("n", "c"), [(4, 0), (4, 1), (5, 3), (6, 6)])
def test_pass_at_k_is_the_share_of_draws_that_hold_a_pass(n: int, c: int) -> None:
    for k in range(1, n + 1):
        draws = list(combinations(range(n), k))
        passed = sum(any(index < c for index in draw) for draw in draws)
        assert pass_at_k(n, c, k) == pytest.approx(passed / len(draws), abs=1e-12)


def test_figures() -> None:
    rates = pass_rates(torch.tensor([[1.0, 0.5, 0.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]))
    assert (rates.prompts, rates.n, rates.mean) == (3, 3, 0.5)
    assert rates.standard_error == pytest.approx(0.5 / 3**0.5)
    assert rates.pass_at == pytest.approx({1: 4 / 9, 2: (2 / 3 + 0 + 1) / 3, 3: 2 / 3})


def test_one_prompt_has_no_spread() -> None:
    rates = pass_rates(torch.ones(1, 4))
    assert (rates.standard_error, rates.pass_at) == (None, {1: 1.0, 2: 1.0, 4: 1.0})
