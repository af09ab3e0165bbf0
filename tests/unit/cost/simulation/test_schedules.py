"""Graphs of real schedules, with seconds drawn for every stage: events and closed form agree."""

from __future__ import annotations

import random
from functools import cache

import pytest
from xdsl.ir import Operation

from rpeg.cost.period.build import task_graph
from rpeg.cost.period.cycles import period
from rpeg.cost.simulation.events import simulate
from rpeg.ir.base import RpegOp
from rpeg.ir.ops.declare import PipelineOp
from rpeg.ir.ops.movement import PublishOp, TransferOp
from rpeg.passes.base import pipelines
from tests.unit.cost.placing import example, placed

PLANS = (
    ("async_grpo_alps64", "alps64"),  # two pools, chunks, weights two steps old
    ("async_grpo_alps64", "one_node"),  # one pool that runs ahead
    ("async_two_pools", "two"),
)


@cache
def schedule(name: str, plan: str) -> PipelineOp:
    return next(pipelines(placed(example(name), plan)))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("name", "plan"), PLANS)
def test_closed_form_and_events_agree(name: str, plan: str, seed: int) -> None:
    draw, drawn = random.Random(seed), dict[Operation, float]()

    def seconds(op: Operation) -> float:
        works = isinstance(op, PublishOp | TransferOp) or (isinstance(op, RpegOp) and op.PLACED)
        return drawn.setdefault(op, draw.uniform(1.0, 50.0)) if works else 0.0

    graph = task_graph(schedule(name, plan), seconds)
    assert simulate(graph, 60, warm=60).period == pytest.approx(period(graph), rel=1e-3)
