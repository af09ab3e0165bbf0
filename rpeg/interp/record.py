"""Recordings of runs, and how far apart two executions of one recording are.

Half of a recording is an oracle's answers, which another execution can replay; the other half is
what an execution made of them. `rpeg.interp.storage` keeps recordings in files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from rpeg.interp.errors import InterpreterError
from rpeg.runtime.trajectories import Trajectories


@dataclass
class StepRecord:
    """One step. Keys are names in the text: of values, or of models where it says so."""

    trajectories: dict[str, Trajectories] = field(default_factory=dict)
    sampled: dict[str, Tensor] = field(default_factory=dict)
    """[samples, max_tokens] log-probs that the trajectories of this name were sampled under."""
    rewards: dict[str, Tensor] = field(default_factory=dict)
    """[samples] rewards of verifiers."""
    logprobs: dict[str, Tensor] = field(default_factory=dict)
    """[samples, max_tokens] log-probs that the step computed; under `update/MODEL` those that the
    last epoch of an update trained on."""
    grad_norms: dict[str, list[float]] = field(default_factory=dict)
    """By model: the global norm before clipping, of each optimizer step."""
    losses: dict[str, list[float]] = field(default_factory=dict)
    """By model, of each optimizer step."""
    metrics: dict[str, float] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)
    """What a run would have written or ended: `checkpoint`, `export MODEL to FOLDER`, `stop`."""


@dataclass
class Recording:
    """A run of a pipeline."""

    pipeline: str
    steps: list[StepRecord] = field(default_factory=list)
    weights: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    """By trained model: its weights after the last step, under Hugging Face names."""


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

    def within(self, bound: Parity) -> bool:
        """Whether every figure is at most the bound's; a NaN is not."""
        return (
            self.logprob <= bound.logprob
            and self.grad_norm <= bound.grad_norm
            and self.weights <= bound.weights
        )


def compare(a: Recording, b: Recording) -> Parity:
    """How far `b` is from `a`: the log-probs that both computed, all gradient norms, all weights.

    Raises InterpreterError if they have not the same steps, models and optimizer steps, or no
    log-probs in common.
    """
    if len(a.steps) != len(b.steps):
        raise InterpreterError(f"{len(a.steps)} steps can't be compared with {len(b.steps)}")
    pairs = list(zip(a.steps, b.steps, strict=True))
    gaps = [gap for pair in pairs for gap in _logprob_gaps(*pair)]
    if not gaps:
        raise InterpreterError("no log-probs in common: compute lp_old = logprob(...) in the step")
    return Parity(
        logprob=_greatest(gaps),
        grad_norm=_greatest([gap for pair in pairs for gap in _norm_gaps(*pair)]),
        weights=_weights_gap(a, b),
    )


def _logprob_gaps(a: StepRecord, b: StepRecord) -> Iterator[float]:
    for name in a.logprobs.keys() & b.logprobs.keys():
        yield float((a.logprobs[name] - b.logprobs[name]).abs().max())


def _norm_gaps(a: StepRecord, b: StepRecord) -> Iterator[float]:
    for model in a.grad_norms.keys() | b.grad_norms.keys():
        ours, theirs = a.grad_norms.get(model, []), b.grad_norms.get(model, [])
        if len(ours) != len(theirs):
            raise InterpreterError(
                f"`{model}` took {len(ours)} optimizer steps in one, {len(theirs)} in the other"
            )
        for x, y in zip(ours, theirs, strict=True):
            yield abs(x - y) / max(abs(x), abs(y), 1e-30)


def _weights_gap(a: Recording, b: Recording) -> float:
    ours, theirs = ({(m, n): t for m, w in r.weights.items() for n, t in w.items()} for r in (a, b))
    if ours.keys() != theirs.keys():
        odd = ", ".join(sorted(f"{m}/{n}" for m, n in ours.keys() ^ theirs.keys())[:3])
        raise InterpreterError(f"not the same weights: {odd}")
    squares = [float((ours[k].double() - theirs[k].double()).square().sum()) for k in ours]
    return float((sum(squares) / max(1, sum(t.numel() for t in ours.values()))) ** 0.5)


def _greatest(gaps: list[float]) -> float:
    """The greatest, NaN if there is one, 0 of none."""
    return float(torch.tensor([0.0, *gaps], dtype=torch.float64).max())
