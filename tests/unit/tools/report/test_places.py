"""Where a report puts what it draws: labels apart, layers in order, rows without overlap."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpeg.tools.report import quantities
from rpeg.tools.report.axes import Scale
from rpeg.tools.report.figures import Figure
from rpeg.tools.report.layers import Sizes, arrange
from rpeg.tools.report.roofline import corner
from rpeg.tools.report.spread import spread
from rpeg.tools.report.timeline import lanes
from tests.unit.tools.report.sample import STAGES, estimate

SIZES = Sizes(node=100.0, bend=8.0, gap=10.0, widest=4)
PLACES = st.lists(st.floats(0, 1000), min_size=1, max_size=12)


@given(PLACES)
def test_spread_keeps_order_and_distance(wanted: list[float]) -> None:
    places = spread(wanted, [16.0] * len(wanted), 0.0, 1000.0)
    assert all(later - earlier >= 16 - 1e-6 for earlier, later in pairwise(places))
    assert places[0] >= -1e-6
    assert places[-1] <= 1000 + 1e-6


@given(PLACES)
def test_spread_leaves_alone_what_is_apart(wanted: list[float]) -> None:
    apart = [20.0 * k + place / 1000 for k, place in enumerate(wanted)]
    assert spread(apart, [10.0] * len(apart), 0.0, 1000.0) == pytest.approx(apart)


def test_spread_moves_as_little_as_it_can() -> None:
    assert spread([50.0, 50.0], [0.0, 10.0], 0.0, 100.0) == [45.0, 55.0]
    assert spread([98.0, 99.0], [0.0, 10.0], 0.0, 100.0) == [90.0, 100.0]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[str], list[tuple[str, str]]]:
    """Acyclic graphs: edges go to later nodes."""
    nodes = [f"n{k}" for k in range(draw(st.integers(1, 14)))]
    pairs = [(a, b) for k, a in enumerate(nodes) for b in nodes[k + 1 :]]
    return nodes, draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []


@given(graphs())
def test_edges_go_down_and_nodes_stay_apart(
    graph: tuple[list[str], list[tuple[str, str]]],
) -> None:
    nodes, edges = graph
    placed = arrange(nodes, edges, SIZES)
    assert all(placed.layer[source] < placed.layer[target] for source, target in edges)
    for number in range(placed.layers):
        middles = sorted(placed.x[n] for n in nodes if placed.layer[n] == number)
        assert len(middles) <= SIZES.widest
        assert all(b - a >= SIZES.node + SIZES.gap - 1e-6 for a, b in pairwise(middles))
        assert all(50 - 1e-6 <= x <= placed.width - 50 + 1e-6 for x in middles)
    for (source, target), way in placed.ways.items():
        assert [layer for _, layer in way] == [
            *range(placed.layer[source], placed.layer[target] + 1)
        ]


def test_tasks_of_a_row_follow_each_other() -> None:
    rows = list(lanes(Figure(estimate().to_json())["tasks"]))
    assert sum(len(row.tasks) for row in rows) == len(estimate().tasks)
    assert [row.resource for row in rows] == ["rollout", "cpu", "train", None, None]
    for row in rows:
        for earlier, later in pairwise(row.tasks):
            assert earlier["end_s"].number <= later["start_s"].number + 1e-9


def test_the_corner_of_the_roof_is_the_machine_s() -> None:
    stages = [s for s in Figure(estimate().to_json())["stages"] if s["mfu"].number]
    assert len(stages) == len(STAGES) - 1
    assert corner(stages) == pytest.approx(989e12 / 4e12)


@pytest.mark.parametrize(
    ("scale", "marks"),
    [
        (Scale(0, 118.25, 0, 1), [0, 20, 40, 60, 80, 100]),
        (Scale(0, 0.3, 0, 1), [0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3]),
        (Scale(0.01, 1, 0, 1, logarithmic=True), [0.01, 0.1, 1]),
    ],
)
def test_marks_are_round(scale: Scale, marks: list[float]) -> None:
    assert scale.marks == pytest.approx(marks)


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (quantities.seconds(118.25), "118 s"),
        (quantities.seconds(0.0456), "45.6 ms"),
        (quantities.seconds(3e-7), "0.300 µs"),
        (quantities.seconds(0), "0 s"),
        (quantities.seconds(12345), "12,300 s"),
        (quantities.flops(2.5e15), "2.50 PFLOP"),
        (quantities.size(96 * 2**30), "96.0 GiB"),
        (quantities.size(512), "512 B"),
        (quantities.share(0.0312), "3.12 %"),
        (quantities.dollars(1234.5), "$1,234.50"),
        (quantities.dollars(0.01234), "$0.0123"),
        (quantities.dollars_for_million(6.1e-6), "$6.10 a million"),
        (quantities.number(1818), "1,820"),
    ],
)
def test_figures_have_three_digits_and_a_unit(shown: str, text: str) -> None:
    assert shown == text
