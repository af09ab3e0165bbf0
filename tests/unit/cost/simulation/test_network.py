"""Shares of links are feasible, and max-min fair."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpeg.cost.simulation.network import Flow, fair_rates

LINKS = ("a", "b", "c")
FLOWS = st.dictionaries(
    st.integers(0, 9),
    st.builds(
        Flow,
        st.lists(st.sampled_from(LINKS), min_size=1, unique=True).map(tuple),
        st.floats(0.1, 20.0),
    ),
    min_size=1,
)
CAPACITY = st.fixed_dictionaries({link: st.floats(0.5, 20.0) for link in LINKS})


def test_a_long_route_yields_to_each_link_it_crosses() -> None:
    """`both` gets half of the narrow link, `wide` all that it leaves of the other."""
    flows = {
        "both": Flow(("narrow", "wide"), 100.0),
        "narrow": Flow(("narrow",), 100.0),
        "wide": Flow(("wide",), 100.0),
    }
    rates = fair_rates(flows, {"narrow": 10.0, "wide": 30.0})
    assert rates == pytest.approx({"both": 5.0, "narrow": 5.0, "wide": 25.0})


@settings(deadline=None, max_examples=50)
@given(FLOWS, CAPACITY)
def test_no_link_carries_more_than_it_can(
    flows: dict[int, Flow], capacity: dict[str, float]
) -> None:
    rates = fair_rates(flows, capacity)
    for link in LINKS:
        sent = sum(rates[key] for key, flow in flows.items() if link in flow.links)
        assert sent <= capacity[link] * (1 + 1e-9)


@settings(deadline=None, max_examples=50)
@given(FLOWS, CAPACITY)
def test_nothing_can_be_faster_but_at_the_cost_of_something_slower(
    flows: dict[int, Flow], capacity: dict[str, float]
) -> None:
    """Each flow is as fast as alone, or crosses a full link on which none is faster."""
    rates = fair_rates(flows, capacity)
    for key, flow in flows.items():
        assert rates[key] > 0
        assert rates[key] >= flow.alone * (1 - 1e-9) or any(
            _is_bottleneck(link, rates[key], flows, rates, capacity) for link in flow.links
        )


def _is_bottleneck(
    link: str,
    rate: float,
    flows: dict[int, Flow],
    rates: dict[int, float],
    capacity: dict[str, float],
) -> bool:
    across = [rates[key] for key, flow in flows.items() if link in flow.links]
    return sum(across) >= capacity[link] * (1 - 1e-9) and max(across) <= rate * (1 + 1e-9)
