"""Figures made of a run: idle time by its reason, lags, events of a trace."""

from __future__ import annotations

import pytest

from rpeg.cost.simulation.events import simulate
from rpeg.cost.simulation.trace import trace_events
from rpeg.cost.simulation.versions import lags
from rpeg.cost.simulation.waiting import occupations
from tests.unit.cost.simulation.test_events import disaggregated


def test_shares_of_time_add_up_and_tell_why() -> None:
    """Synchronous: of 172 s the trainer works 64, and waits for data in between."""
    found = occupations(simulate(disaggregated(0), 20, warm=20))
    assert found["trainer"].busy == pytest.approx(64 / 172)
    assert found["rollout"].idle == pytest.approx({"staleness": 72 / 172})
    for each in found.values():
        assert each.busy + sum(each.idle.values()) == pytest.approx(1.0)


def test_a_full_buffer_is_the_reason() -> None:
    found = occupations(simulate(disaggregated(4, buffer=1), 20, warm=20))
    assert set(found["rollout"].idle) == {"back-pressure"}


@pytest.mark.parametrize(("k", "batches"), [(0, {0: 20}), (1, {1: 20}), (4, {1: 20})])
def test_batches_come_from_the_newest_weights_there(k: int, batches: dict[int, int]) -> None:
    """172 s from sampling to publishing, steps of 100 s: one step old, whatever is allowed."""
    run = simulate(disaggregated(k), 20, warm=20)
    found = lags(run, {})["y"]
    assert (found.bound, found.batches) == (k, batches)
    ahead = lags(run, {"y": 2})["y"]
    assert (ahead.bound, ahead.mean) == (k + 2, found.mean + 2)


def test_trace_has_each_task_once_a_step_on_its_track() -> None:
    events = list(trace_events(simulate(disaggregated(1), 3), {}))
    names = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
    work = [e for e in events if e["ph"] == "X"]
    assert {(e["name"], e["args"]["step"]) for e in work} == {
        (task, step) for task in ("y", "r", "actor", "publish") for step in range(3)
    }
    assert names[work[0]["tid"]] == "rollout"
    assert (work[0]["ts"], work[0]["dur"]) == (0, 100_000_000)
