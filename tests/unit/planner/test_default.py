from __future__ import annotations

import pytest

from rpeg.passes.base import pipelines
from rpeg.planner.default import LARGEST_ON_CPU, default_processes, divisible
from tests.unit.passes.pipelines import grpo, parse


def widths(size: int, minibatches: int = 1) -> int:
    changes = ("size=4", f"size={size}"), ("token_mean)", f"token_mean, minibatches={minibatches})")
    return divisible(next(pipelines(parse(grpo(*changes)))))


@pytest.mark.parametrize(
    ("size", "minibatches", "width"), [(4, 1, 4), (6, 1, 6), (6, 4, 3), (7, 1, 7), (4, 8, 1)]
)
def test_every_batch_and_minibatch_divides(size: int, minibatches: int, width: int) -> None:
    assert widths(size, minibatches) == width


@pytest.mark.parametrize(
    ("gpus", "cores", "processes"),
    [(0, 1, 1), (0, 2, 2), (0, 3, 3), (0, 5, 4), (0, 1000, 8), (5, 64, 4), (24, 1, 24)],
)
def test_the_most_that_this_machine_has(gpus: int, cores: int, processes: int) -> None:
    assert LARGEST_ON_CPU == 8
    (pipeline,) = pipelines(parse(grpo(("size=4", "size=24"))))
    assert default_processes(pipeline, gpus, cores) == processes
