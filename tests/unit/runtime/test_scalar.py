"""Numbers that cross steps: an adaptive KL coefficient."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rpeg import runtime as rt
from rpeg.runtime.groups import Groups
from rpeg.runtime.losses import adapted_coef, summed_kl
from rpeg.runtime.models.shared_ids import share_tokenizer
from rpeg.runtime.models.tokenizer import Tokenizer
from rpeg.runtime.run import Run
from rpeg.runtime.trajectories import Trajectories

MODELS = Path(__file__).parents[3] / "models"


@pytest.mark.parametrize(
    ("kl", "coef"), [(0.1, 1.0), (0.11, 1.05), (0.2, 1.1), (9.0, 1.1), (0.0, 0.9), (0.095, 0.975)]
)
def test_the_coefficient_follows_the_kl(kl: float, coef: float) -> None:
    """At half the horizon a batch, errors beyond a fifth count as a fifth."""
    assert adapted_coef(1.0, kl, 50, target=0.1, horizon=100) == pytest.approx(coef)


def test_each_response_counts_once_in_the_kl() -> None:
    mask = torch.tensor([[1, 1, 1], [1, 0, 0], [0, 0, 0]]).bool()
    policy = torch.tensor([[1.0, 2.0, 3.0], [4.0, 99.0, 99.0], [99.0, 99.0, 99.0]])
    assert summed_kl(policy, torch.zeros(3, 3), mask) == (2.0 + 4.0, 2)


def test_a_state_lives_in_checkpoints(
    run: Run, groups: Groups, trajectories: Callable[[int], Trajectories]
) -> None:
    kl, y = rt.Scalar(run, "kl", init=0.5), trajectories(8)
    policy, rewards = torch.zeros(y.tokens.shape), torch.zeros(8)
    settings: dict[str, Any] = {"target": 1.0, "horizon": 16, "groups": groups}
    kl.kl_controller(y, policy + 2.0, policy, **settings)
    assert kl.value == pytest.approx(0.5 * 1.1)
    kl.load_state_dict({"value": kl.state_dict()["value"] * 2})
    penalised = rt.kl_penalty(y, rewards, policy + 1.0, policy, coef=kl)
    assert penalised[y.mask].tolist() == pytest.approx([-1.1] * y.token_count)


class Named:
    """A model, as far as its tokens go."""

    def __init__(self, name: str, folder: str) -> None:
        self.name = name
        self.tokenizer = Tokenizer(MODELS / folder)


def test_a_teacher_with_other_tokens_is_refused() -> None:
    student = Named("student", "tiny-qwen3-digits")
    share_tokenizer(student, Named("twin", "tiny-qwen3-digits"))
    with pytest.raises(rt.RuntimeFailure, match="`teacher` reads the tokens of `student`, but has"):
        share_tokenizer(student, Named("teacher", "tiny-qwen2"))
