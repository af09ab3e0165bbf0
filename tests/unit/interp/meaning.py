"""Whether a rewrite keeps the meaning of a pipeline: both are interpreted on one recording.

Three steps, and what they must agree in: log-probs, whole gradients of each optimizer step, all
weights, rewards, metrics and events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from rpeg.interp import Interpreter, Replay
from rpeg.interp.optimizer import Session
from rpeg.interp.parity import gaps, weights_gap
from rpeg.ir.rules.verify import diagnose
from rpeg.ir.text.diagnostics import DiagnosticsError
from rpeg.ir.text.sources import Sources
from rpeg.runtime.recordings.recording import Recording, StepRecord

Interpret = Callable[..., Interpreter]
STEPS = 3
NATS = 1e-5
"""How far log-probs may be apart."""
APART = 1e-6
"""How far weights (rms), gradients (relative to their norm) and metrics may be apart."""


@dataclass(frozen=True)
class Executed:
    """What an execution leaves."""

    recording: Recording
    gradients: list[Tensor]
    """[parameters] the clipped gradient of each optimizer step, in the order of execution."""


def execute(module: ModuleOp, interpret: Interpret, given: Executed | None = None) -> Executed:
    """Three steps, on the trajectories and rewards of another execution if there is one."""
    oracle = Replay(given.recording) if given is not None else None
    with gradients() as found:
        return Executed(interpret(module, oracle=oracle).run(STEPS), found)


@contextmanager
def gradients() -> Iterator[list[Tensor]]:
    """The gradients of all optimizer steps inside."""
    found: list[Tensor] = []
    step = Session.step

    def noting(session: Session, losses: Iterable[Tensor], lr: float) -> float:
        norm = step(session, losses, lr)
        parts = (p.grad for p in session.parameters.values())
        found.append(torch.cat([g.flatten().clone() for g in parts if g is not None]))
        return norm

    Session.step = noting  # type: ignore[method-assign]
    try:
        yield found
    finally:
        Session.step = step  # type: ignore[method-assign]


def rewritten(module: ModuleOp, *passes: ModulePass) -> ModuleOp:
    """A copy after these passes, verified after each. Raises DiagnosticsError."""
    copy = module.clone()
    for each in passes:
        each.apply(Context(), copy)
        broken = [d for d in diagnose(copy, Sources("p.rpeg")) if d.severity == "error"]
        if broken:
            raise DiagnosticsError(broken)
    return copy


def differences(
    module: ModuleOp, other: ModuleOp, interpret: Interpret, first: Executed | None = None
) -> list[str]:
    """In what the second module differs from the first, which may have run already; nothing if it
    means the same.
    """
    first = first or execute(module, interpret)
    return list(apart(first, execute(other, interpret, first)))


def apart(a: Executed, b: Executed, gradient: float = APART) -> Iterator[str]:
    """In what two executions differ; `gradient` is how far gradients may be apart, relative to
    their norm.
    """
    for gap in gaps(a.recording, b.recording):
        if not gap.value <= (gradient if gap.kind == "grad_norm" else NATS):
            yield f"{gap.kind} {gap.name} of step {gap.step}: {gap.value:.1e}"
    yield from _gradient_differences(a.gradients, b.gradients, gradient)
    apart = weights_gap(a.recording, b.recording)
    if not apart <= APART:
        yield f"weights: {apart:.1e}"
    for i, (ours, theirs) in enumerate(zip(a.recording.steps, b.recording.steps, strict=True)):
        yield from (f"step {i}: {text}" for text in _step_differences(ours, theirs))


def _gradient_differences(a: Sequence[Tensor], b: Sequence[Tensor], bound: float) -> Iterator[str]:
    for k, (ours, theirs) in enumerate(zip(a, b, strict=True)):
        apart = float((ours - theirs).norm() / ours.norm().clamp(min=1e-30))
        if not apart <= bound:
            yield f"gradient {k}: {apart:.1e}"


def _step_differences(a: StepRecord, b: StepRecord) -> Iterator[str]:
    if a.events != b.events:
        yield f"{a.events} became {b.events}"
    ours, theirs = _measured(a), _measured(b)
    if ours.keys() != theirs.keys():
        yield f"{[*ours]} became {[*theirs]}"
    for name in ours.keys() & theirs.keys():
        if abs(ours[name] - theirs[name]) > APART:
            yield f"{name} was {ours[name]}, is {theirs[name]}"
    for name, reward in a.rewards.items():  # by value: equal ones may have become one
        if not any(torch.equal(reward, other) for other in b.rewards.values()):
            yield f"the reward {name} is gone"


def _measured(step: StepRecord) -> dict[str, float]:
    """Metrics of the text; those with a path are of verifiers, which a replay does not ask."""
    return {name: value for name, value in step.metrics.items() if "/" not in name}
