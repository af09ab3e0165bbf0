"""Bytes that a model holds on one process: weights, gradients, optimizer, and what passes keep."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rpeg.cost.memory import Keeping, activations, training_memory
from rpeg.cost.plans import FULL, Plans
from rpeg.cost.profiles.layouts import RECOMPUTE, Bound, Layout
from rpeg.cost.profiles.shapes import ModelShape
from rpeg.cost.profiles.workload import Rows


@dataclass(frozen=True)
class States:
    """Bytes on one process that stay between passes."""

    weights: float
    gradients: float
    optimizer: float


@dataclass(frozen=True)
class Passing:
    """Bytes on one process while a pass runs."""

    activations: float
    logits: float


def states(model: ModelShape, layout: Layout) -> States:
    """Of a model under a layout; of the busier end of its pipeline."""
    held = training_memory(model.shape, _plans(model, layout, 1.0, 1.0), _keeping(model))
    return States(float(held.weights), float(held.gradients), float(held.optimizer))


def training_pass(
    model: ModelShape, layout: Layout, bound: Bound, rows: Rows, longest: float
) -> Passing:
    """Of forward and backward passes over rows of `longest` tokens each."""
    plans = _full(model, layout, bound, rows, longest)
    held = training_memory(model.shape, plans, _keeping(model))
    return Passing(float(held.activations), float(held.logits))


def forward_pass(
    model: ModelShape, layout: Layout, bound: Bound, rows: Rows, longest: float
) -> Passing:
    """Of a forward pass alone, which keeps no more than a layer at a time."""
    plans = _full(model, layout, bound, rows, longest, recompute="full")
    layer = activations(model.shape, plans, _keeping(model), np.zeros(()))
    logits = _keeping(model).logit * plans.tokens * model.shape.vocabulary / plans.tp
    return Passing(float(layer), float(logits))


def _keeping(model: ModelShape) -> Keeping:
    """A model declared in fp32 has no other copy of its weights, and its activations are fp32."""
    if model.width > 2.0:
        return Keeping(weight=4.0, optimizer=8.0, matmul_input=4.0)
    return Keeping()


def _full(
    model: ModelShape,
    layout: Layout,
    bound: Bound,
    rows: Rows,
    longest: float,
    recompute: str | None = None,
) -> Plans:
    """The fullest micro-batches: as many as rows of that length give."""
    tokens = bound.at_most(rows, layout.dp, longest)
    count = max(rows.number / layout.dp * longest / tokens, 1.0)
    return _plans(model, layout, tokens, count, longest, recompute)


def _plans(
    model: ModelShape,
    layout: Layout,
    tokens: float,
    count: float,
    seq: float = 1.0,
    recompute: str | None = None,
) -> Plans:
    return Plans.of(
        batch=count * layout.dp * tokens / seq,
        micro=tokens / seq,
        seq=seq,
        tp=layout.tp,
        pp=layout.pp,
        vpp=layout.vpp,
        dp=layout.dp,
        cp=layout.cp,
        ep=layout.ep,
        sp=float(layout.sp),
        zero=layout.zero,
        recompute=FULL if recompute == "full" else RECOMPUTE[layout.recompute],
        trained=model.trained,
    )
