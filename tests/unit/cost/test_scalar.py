"""One plan at a time gives what a hundred thousand at once give."""

import runpy
from pathlib import Path

import numpy as np

BENCHMARK = runpy.run_path(str(Path(__file__).parents[3] / "benchmarks" / "plans.py"))


def test_scalar_path_is_equal() -> None:
    plans = BENCHMARK["distinct"](2000)
    many = BENCHMARK["costs"](plans)
    few = np.linspace(0, 1999, 100).astype(int)
    for index in few:
        alone = BENCHMARK["costs"](plans.at(int(index)))
        for whole, single in zip(many, alone, strict=True):
            assert abs(whole[index] - single) <= 1e-12 * abs(single)


def test_plans_are_distinct() -> None:
    plans = BENCHMARK["distinct"](5000)
    rows = {
        tuple(row)
        for row in np.stack(
            [
                plans.tp,
                plans.pp,
                plans.dp,
                plans.cp,
                plans.vpp,
                plans.micro,
                plans.recompute,
                plans.zero,
                plans.sp,
                plans.batch,
            ],
            axis=1,
        )
    }
    assert len(rows) == 5000
