"""Stages that go through a model as it is spread over its pool: log-probs, values, scores, updates.

A forward pass takes (m + p - 1) slots of its micro-batches; an update takes E·M optimizer steps,
each on the rows of a minibatch.
"""

from __future__ import annotations

from rpeg.cost.hardware import Machine
from rpeg.cost.profiles.layouts import Bound, Layout
from rpeg.cost.profiles.shapes import ModelShape
from rpeg.cost.profiles.stage import Profile, attributed
from rpeg.cost.profiles.workload import Rows
from rpeg.cost.training import Software, forward_time, step_time


def forward(
    model: ModelShape, layout: Layout, bound: Bound, rows: Rows, machine: Machine, era: Software
) -> Profile:
    """One forward pass over the rows."""
    plans = layout.plans(rows, bound, trained=0.0)
    useful = model.shape.forward_flops(rows.packed, rows.squares)

    def seconds(on: Machine) -> float:
        return float(forward_time(model.shape, on, plans, software=era))

    return attributed(seconds, machine, useful, layout.processes)


def update(
    model: ModelShape,
    layout: Layout,
    bound: Bound,
    rows: Rows,
    machine: Machine,
    era: Software,
    *,
    epochs: int,
    minibatches: int,
) -> Profile:
    """All optimizer steps of an update; a backward pass is worth two forward ones."""
    plans = layout.plans(rows.share(rows.number / minibatches), bound, model.trained)

    def seconds(on: Machine) -> float:
        each = step_time(model.shape, on, plans, software=era).total
        return float(epochs * minibatches * each)

    passes = epochs * (2.0 + min(model.trained, 1.0))
    useful = passes * model.shape.forward_flops(rows.packed, rows.squares)
    return attributed(seconds, machine, useful, layout.processes)
