"""Layouts and their rank grids; no processes are started."""

from __future__ import annotations

import pytest

from rpeg.runtime.errors import LayoutFailure
from rpeg.runtime.groups import partition
from rpeg.runtime.layout import Layout


def test_tensor_parallel_ranks_are_neighbours_and_stages_are_far_apart() -> None:
    layout = Layout(dp=2, tp=2, pp=2)
    assert partition(layout, ["tp"]) == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert partition(layout, ["dp"]) == ((0, 4), (1, 5), (2, 6), (3, 7))
    assert partition(layout, ["pp"]) == ((0, 2), (1, 3), (4, 6), (5, 7))
    assert partition(layout, ["tp", "pp"]) == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert partition(layout, []) == tuple((rank,) for rank in range(8))


@pytest.mark.parametrize(
    ("layout", "processes", "message"),
    [
        (Layout(dp=2), 1, "dp x tp x pp x cp = 2"),
        (Layout(cp=2), 2, "must be 1 in this version"),
        (Layout(zero=3), 1, "zero must be 0 or 1"),
        (Layout(sp=True), 1, "needs tp > 1"),
    ],
)
def test_a_layout_that_does_not_fit_says_why(layout: Layout, processes: int, message: str) -> None:
    with pytest.raises(LayoutFailure, match=message):
        layout.check(processes)
