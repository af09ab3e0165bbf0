"""How far apart two executions of one recording are, and where they part.

Of each step are compared the log-probs of its engine, those that it computes, and of each optimizer
step the log-probs that it trains on and the gradient's norm; in the end, all weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from rpeg.interp.errors import InterpreterError
from rpeg.runtime.recordings.recording import Recording, StepRecord

Kind = Literal["behaviour", "logprob", "grad_norm"]


@dataclass(frozen=True)
class Gap:
    """The greatest difference of two tensors, or of two numbers."""

    kind: Kind
    """`behaviour`: log-probs of the engine; `logprob`: of the trainer; both absolute, in nats.
    `grad_norm`: relative."""
    value: float
    step: int
    """0 is the first."""
    name: str
    """Of the value in the text, or of the trained model."""
    optimizer_step: int | None = None
    """Within the step's update, where it is one's."""
    sample: int | None = None
    token: int | None = None


@dataclass(frozen=True)
class Parity:
    """How far apart two executions are; as a bound, how far they may be.

    The default bounds hold for float32 and learning rates up to 3e-4, over 5 steps.
    """

    logprob: float = 1e-5
    """Greatest difference of a token's log-prob, in nats."""
    grad_norm: float = 1e-5
    """Greatest relative difference of a gradient's norm."""
    weights: float = 1e-6
    """Root mean square of the differences of all final weights. Never the greatest: Adam turns
    reassociation into steps of the size of the learning rate."""
    behaviour: float = 1e-5
    """Greatest difference of a log-prob that an engine gives a sampled token, in nats."""

    def within(self, bound: Parity) -> bool:
        """Whether every figure is at most the bound's; a NaN is not."""
        return (
            self.logprob <= bound.logprob
            and self.grad_norm <= bound.grad_norm
            and self.weights <= bound.weights
            and self.behaviour <= bound.behaviour
        )


def compare(a: Recording, b: Recording) -> Parity:
    """How far `b` is from `a`: the log-probs that both computed, all gradient norms, all weights.

    Raises InterpreterError if they have not the same steps, models and optimizer steps, or no
    log-probs in common.
    """
    found = list(gaps(a, b))
    if not any(gap.kind == "logprob" for gap in found):
        raise InterpreterError("no log-probs in common: compute lp_old = logprob(...) in the step")
    return Parity(
        logprob=greatest(found, "logprob"),
        grad_norm=greatest(found, "grad_norm"),
        weights=weights_gap(a, b),
        behaviour=greatest(found, "behaviour"),
    )


def gaps(a: Recording, b: Recording) -> Iterator[Gap]:
    """Everything that both computed before the last weights, in the order of its computation.

    Raises InterpreterError if they have not the same steps and optimizer steps.
    """
    if len(a.steps) != len(b.steps):
        raise InterpreterError(f"{len(a.steps)} steps can't be compared with {len(b.steps)}")
    for i, (ours, theirs) in enumerate(zip(a.steps, b.steps, strict=True)):
        for name in _common(ours.sampled, theirs.sampled):
            yield _of_tensors("behaviour", ours.sampled[name], theirs.sampled[name], i, name)
        for name in _common(ours.logprobs, theirs.logprobs):
            yield _of_tensors("logprob", ours.logprobs[name], theirs.logprobs[name], i, name)
        yield from _update_gaps(ours, theirs, i)


def _common(a: Iterable[str], b: Iterable[str]) -> list[str]:
    others = set(b)
    return [name for name in a if name in others]


def _of_tensors(
    kind: Kind, ours: Tensor, theirs: Tensor, step: int, name: str, rows: Tensor | None = None
) -> Gap:
    """The gap of two tensors [samples, tokens]; `rows` are the samples' numbers (default: all)."""
    width = min(ours.shape[1], theirs.shape[1])
    apart = (ours[:, :width] - theirs[:, :width]).abs()
    worst = apart.nan_to_num(nan=float("inf")).flatten().argmax() if apart.numel() else 0
    row, token = divmod(int(worst), max(1, width))
    value = float(apart[row, token]) if apart.numel() else 0.0
    return Gap(kind, value, step, name, None, row if rows is None else int(rows[row]), token)


def _update_gaps(a: StepRecord, b: StepRecord, step: int) -> Iterator[Gap]:
    for model in {**a.grad_norms, **b.grad_norms}:
        ours, theirs = a.grad_norms.get(model, []), b.grad_norms.get(model, [])
        if len(ours) != len(theirs):
            raise InterpreterError(
                f"`{model}` took {len(ours)} optimizer steps in one, {len(theirs)} in the other"
            )
        for k, (x, y) in enumerate(zip(ours, theirs, strict=True)):
            yield from _trained_gaps(a, b, step, model, k)
            value = abs(x - y) / max(abs(x), abs(y), 1e-30)
            yield Gap("grad_norm", value, step, model, k)


def _trained_gaps(a: StepRecord, b: StepRecord, step: int, model: str, k: int) -> Iterator[Gap]:
    """Of the samples that both trained: one may leave out those without loss."""
    key = f"{model}/{k}"
    if key not in a.trained_rows or key not in b.trained_rows:
        return
    ours, theirs = a.trained_rows[key], b.trained_rows[key]
    x = a.trained_logprobs[key][torch.isin(ours, theirs)]
    y = b.trained_logprobs[key][torch.isin(theirs, ours)]
    found = _of_tensors("logprob", x, y, step, model, ours[torch.isin(ours, theirs)])
    yield Gap("logprob", found.value, step, model, k, found.sample, found.token)


def weights_gap(a: Recording, b: Recording) -> float:
    """Root mean square of the differences of all final weights.

    Raises InterpreterError if they have not the same weights.
    """
    gaps = squared_gaps(a, b).values()
    total, numbers = sum(float(gap.sum()) for gap in gaps), sum(gap.numel() for gap in gaps)
    return float((total / max(1, numbers)) ** 0.5)


def squared_gaps(a: Recording, b: Recording) -> dict[tuple[str, str], Tensor]:
    """By (model, tensor): the squared differences of the final weights, float64."""
    ours, theirs = ({(m, n): t for m, w in r.weights.items() for n, t in w.items()} for r in (a, b))
    if ours.keys() != theirs.keys():
        odd = ", ".join(sorted(f"{m}/{n}" for m, n in ours.keys() ^ theirs.keys())[:3])
        raise InterpreterError(f"not the same weights: {odd}")
    return {key: (ours[key].double() - theirs[key].double()).square() for key in ours}


def greatest(gaps: Iterable[Gap], kind: Kind) -> float:
    """The greatest gap of a kind, NaN if there is one, 0 of none."""
    values = [0.0, *(gap.value for gap in gaps if gap.kind == kind)]
    return float(torch.tensor(values, dtype=torch.float64).max())
