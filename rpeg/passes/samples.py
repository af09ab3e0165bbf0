"""What a `generate` samples, and the losses that train on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from rpeg.ir.ops.losses import LossOp
from rpeg.ir.ops.regions import CollectOp, terminator_of
from rpeg.ir.ops.sampling import GenerateOp
from rpeg.ir.ops.step import StepOp
from rpeg.ir.text.naming import trajectories_of
from rpeg.ir.types.values import WeightsType


@dataclass(frozen=True)
class Samples:
    """Trajectories as a loss reads them: a generate's own, or what a `collect` keeps of them."""

    y: SSAValue
    generate: GenerateOp
    recorded: SSAValue | None
    """The log-probs that they were sampled under; None where a `collect` leaves them behind."""


def samples_of(y: SSAValue) -> Samples | None:
    """Where trajectories come from; None where no generate of their step made them."""
    match y.owner:
        case GenerateOp() as generate:
            return Samples(y, generate, generate.logprobs)
        case CollectOp() as collect:
            keep = terminator_of(collect)
            pairs = zip(collect.results, keep.operands if keep else (), strict=True)
            kept: dict[SSAValue, SSAValue] = dict(pairs)
            inner = trajectories_of(kept[y])
            made = samples_of(inner) if inner is not None else None
            if made is None:
                return None
            outer = (o for o, inside in kept.items() if inside is made.recorded)
            return Samples(y, made.generate, next(outer, None))
        case _:
            return None


def losses_of(body: StepOp, generate: GenerateOp) -> Iterator[tuple[LossOp, Samples]]:
    """The losses of a generate's samples, in the order of the text."""
    for op in body.walk():
        if isinstance(op, LossOp) and op.operands:
            samples = samples_of(op.operands[0])
            if samples is not None and samples.generate is generate:
                yield op, samples


def sampled_weights(generate: GenerateOp) -> WeightsType:
    """The weights that a generate reads."""
    held = generate.weights.type
    assert isinstance(held, WeightsType)
    return held


def at_start(body: StepOp, model: str) -> SSAValue | None:
    """A model's weights as the step starts; None of one that never changes."""
    held = ((state, state.type) for state in body.states)
    return next((s for s, t in held if isinstance(t, WeightsType) and t.owner == model), None)


def is_above(value: SSAValue, op: Operation) -> bool:
    """Whether an operation makes a value above `op`, in its block or in one around that."""
    here: Operation | None = op
    while here is not None and isinstance(value.owner, Operation):
        if here.parent_block() is value.owner.parent_block():
            return value.owner.is_before_in_block(here)
        here = here.parent_op()
    return False
