"""Bytes that a model holds on one process: weights, gradients, optimizer, and what passes keep."""

from __future__ import annotations

from dataclasses import dataclass

from rpeg.cost.memory import Keeping, training_memory
from rpeg.cost.plans import Plans
from rpeg.cost.profiles.layouts import Bound, Layout
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


@dataclass(frozen=True)
class Row:
    """A sequence as long as memory is asked for."""

    tokens: float
    """Of prompt and response."""
    answered: float
    """Share of the response's."""


def states(model: ModelShape, layout: Layout) -> States:
    """Of a model under a layout; of the busier end of its pipeline."""
    plans = layout.split(layout.dp, 1.0, 1.0, model.trained)
    held = training_memory(model.shape, plans, _keeping(model))
    return States(float(held.weights), float(held.gradients), float(held.optimizer))


def training_pass(
    model: ModelShape, layout: Layout, bound: Bound, rows: Rows, longest: Row
) -> Passing:
    """Of forward and backward passes over rows as long as `longest`: logits and their gradients,
    where completions are.
    """
    plans = _full(model, layout, bound, rows, longest)
    held = training_memory(model.shape, plans, _keeping(model))
    return Passing(float(held.activations), 2.0 * _logits(model, plans, longest))


def forward_pass(
    model: ModelShape, layout: Layout, bound: Bound, rows: Rows, longest: Row
) -> Passing:
    """Of a forward pass alone: the residual stream, its norm, and one MLP with what it makes."""
    plans, shape = _full(model, layout, bound, rows, longest), model.shape
    experts = shape.experts
    routed = experts.per_token * experts.ffn + experts.shared_ffn if experts else 0
    inner = shape.mlp_matrices * max(shape.ffn, routed) / plans.tp
    stream = 2.0 * shape.hidden / plans.sequence_split
    layer = model.width * plans.tokens * (stream + inner)
    return Passing(float(layer), _logits(model, plans, longest))


def _logits(model: ModelShape, plans: Plans, longest: Row) -> float:
    """Of the responses' tokens alone; the loss widens them in blocks."""
    if model.shape.vocabulary == 1:
        return 0.0
    answered = plans.tokens * longest.answered
    return float(model.width * answered * model.shape.vocabulary / plans.tp)


def _keeping(model: ModelShape) -> Keeping:
    """A model declared in fp32 has no other copy of its weights, and its activations are fp32."""
    if model.width > 2.0:
        return Keeping(weight=4.0, optimizer=8.0, matmul_input=4.0)
    return Keeping()


def _full(model: ModelShape, layout: Layout, bound: Bound, rows: Rows, longest: Row) -> Plans:
    """The fullest micro-batches: as many as rows of that length give."""
    tokens = bound.at_most(rows, layout.dp, longest.tokens)
    count = max(rows.number / layout.dp * longest.tokens / tokens, 1.0)
    return layout.split(count * layout.dp * tokens, tokens, longest.tokens, model.trained)
