"""AdamW by hand: the first step, decay, clipping, and the schedules at their corners."""

from __future__ import annotations

import pytest
import torch

from rpeg.interp.optimizer import AdamW, Session

PLAIN = AdamW(0.1, 0.9, 0.99, weight_decay=0.0, grad_clip=0.0, warmup=0, schedule="constant")


@pytest.mark.parametrize(
    ("schedule", "warmup", "rates"),
    [
        ("constant", 0, [1.0, 1.0, 1.0, 1.0]),
        ("constant", 2, [0.5, 1.0, 1.0, 1.0]),
        ("linear", 0, [1.0, 0.75, 0.5, 0.25]),
        ("linear", 2, [0.5, 1.0, 1.0, 0.5]),
        ("cosine", 0, [1.0, 0.8535534, 0.5, 0.1464466]),
    ],
)
def test_rates(schedule: str, warmup: int, rates: list[float]) -> None:
    settings = AdamW(1.0, 0.9, 0.99, 0.0, 0.0, warmup, schedule)
    assert [settings.rate(step, 4) for step in range(4)] == pytest.approx(rates)


def test_the_first_step_is_the_sign_of_the_gradient() -> None:
    session = Session({"w": torch.tensor([[1.0, 2.0]])}, {}, PLAIN)
    norm = session.step([(session.parameters["w"] * torch.tensor([[3.0, -4.0]])).sum()], lr=0.1)
    assert norm == 5.0
    assert session.tensors()["w"].tolist()[0] == pytest.approx([0.9, 2.1])


def test_only_matrices_decay() -> None:
    start = {"matrix": torch.ones(1, 2), "norm": torch.ones(2)}
    session = Session(start, {}, AdamW(0.1, 0.9, 0.99, 0.5, 0.0, 0, "constant"))
    total = session.parameters["matrix"].sum() + session.parameters["norm"].sum()
    session.step([total * 0.0], lr=0.1)
    assert session.tensors()["matrix"].tolist() == [[pytest.approx(0.95)] * 2]
    assert session.tensors()["norm"].tolist() == [1.0, 1.0]


def test_clipping_scales_the_gradient_and_reports_what_it_was() -> None:
    start = {"w": torch.zeros(1, 2)}
    clipped = Session(start, {}, AdamW(0.1, 0.9, 0.99, 0.0, 1.0, 0, "constant"))
    norm = clipped.step([(clipped.parameters["w"] * torch.tensor([[3.0, 4.0]])).sum()], lr=0.1)
    assert norm == 5.0
    gradient = clipped.parameters["w"].grad
    assert gradient is not None
    assert gradient.tolist()[0] == pytest.approx([0.6, 0.8])


def test_moments_go_on_and_the_start_stays() -> None:
    start = {"w": torch.ones(1, 2)}

    def steps(session: Session, count: int) -> Session:
        for _ in range(count):
            session.step([(session.parameters["w"] ** 2).sum()], lr=0.1)
        return session

    half = steps(Session(start, {}, PLAIN), 2)
    moments = half.moments()
    resumed = steps(Session(half.tensors(), moments, PLAIN), 2)
    again = steps(Session(half.tensors(), moments, PLAIN), 2)
    straight = steps(Session(start, {}, PLAIN), 4)
    assert torch.equal(resumed.tensors()["w"], straight.tensors()["w"])
    assert torch.equal(again.tensors()["w"], resumed.tensors()["w"])
    assert start["w"].tolist() == [[1.0, 1.0]]
