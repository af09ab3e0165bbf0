"""How far apart two executions of one recording are, and where they part.

Of each step are compared the log-probs of its engine, the log-probs and values that it computes,
and of each optimizer step what it trains towards, the log-probs and values that it trains on, what
each loss term comes to, and the gradient's norm; in the end, all weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from rpeg.interp.errors import InterpreterError
from rpeg.runtime.recordings.recording import Recording, StepRecord

Kind = Literal["behaviour", "logprob", "value", "target", "loss", "grad_norm"]
Head = Literal["policy", "value"]
"""What predicts tokens, and what gives a number."""


@dataclass(frozen=True)
class Gap:
    """The greatest difference of two tensors, or of two numbers."""

    kind: Kind
    """`behaviour`: log-probs of the engine; `logprob`: of the trainer; both absolute, in nats.
    `value`: values and scores; `target`: advantages and returns that are trained towards; absolute.
    `loss`: what a term of a loss comes to, relative where it is above 1. `grad_norm`: relative."""
    value: float
    step: int
    """0 is the first."""
    name: str
    """Of the value in the text, or of what an optimizer step says, reads or costs."""
    model: str
    head: Head | None
    """Whose it is; None of a gradient's norm, which is the whole model's."""
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
    value: float = 1e-5
    """Greatest difference of a critic's value or of a score."""
    target: float = 1e-5
    """Greatest difference of an advantage or a return that is trained towards."""
    loss: float = 1e-5
    """Greatest difference of what a loss term comes to in a minibatch; relative above 1."""

    def within(self, bound: Parity) -> bool:
        """Whether every figure is at most the bound's; a NaN is not."""
        return all(a <= b for a, b in zip(astuple(self), astuple(bound), strict=True))


EXACT = Parity(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
"""Of two executions that computed the same bits."""


def compare(a: Recording, b: Recording) -> Parity:
    """How far `b` is from `a`: the log-probs that both computed, all gradient norms, all weights.

    Raises InterpreterError if they have not the same steps, models and optimizer steps, or no
    log-probs in common.
    """
    found = list(gaps(a, b))
    if not any(gap.kind == "logprob" for gap in found):
        raise InterpreterError("no log-probs in common: compute lp_old = logprob(...) in the step")
    return parity(found, weights_gap(a, b))


def parity(found: Sequence[Gap], weights: float) -> Parity:
    """The greatest of each kind."""
    return Parity(weights=weights, **{kind: greatest(found, kind) for kind in get_args(Kind)})


def gaps(a: Recording, b: Recording) -> Iterator[Gap]:
    """Everything that both computed before the last weights, in the order of its computation.

    Raises InterpreterError if they have not the same steps and optimizer steps.
    """
    if len(a.steps) != len(b.steps):
        raise InterpreterError(f"{len(a.steps)} steps can't be compared with {len(b.steps)}")
    for i, (ours, theirs) in enumerate(zip(a.steps, b.steps, strict=True)):
        yield from _computed_gaps(ours, theirs, i)
        yield from _update_gaps(ours, theirs, i)


def _computed_gaps(a: StepRecord, b: StepRecord, step: int) -> Iterator[Gap]:
    """Of what a step computed apart from updates."""
    groups: list[tuple[Kind, Head, Mapping[str, Tensor], Mapping[str, Tensor]]] = [
        ("behaviour", "policy", a.sampled, b.sampled),
        ("logprob", "policy", a.logprobs, b.logprobs),
        ("value", "value", a.values, b.values),
    ]
    for kind, head, ours, theirs in groups:
        for name in _common(ours, theirs):
            whose = _Whose(kind, step, name, a.makers.get(name, ""), head)
            yield whose.gap(ours[name], theirs[name])


def _common(a: Iterable[str], b: Iterable[str]) -> list[str]:
    others = set(b)
    return [name for name in a if name in others]


@dataclass(frozen=True)
class _Whose:
    """What a gap is of; `Gap` says what its fields are."""

    kind: Kind
    step: int
    name: str
    model: str
    head: Head | None
    optimizer_step: int | None = None

    def number(self, value: float) -> Gap:
        """Of two numbers that are so far apart."""
        return Gap(value=value, **vars(self))

    def gap(self, ours: Tensor, theirs: Tensor, rows: Tensor | None = None) -> Gap:
        """Of two tensors [samples, tokens]; `rows` are the samples' numbers (default: all)."""
        row, token, value = _farthest(ours, theirs)
        sample = row if rows is None or not len(rows) else int(rows[row])
        return Gap(value=value, sample=sample, token=token, **vars(self))


def _farthest(ours: Tensor, theirs: Tensor) -> tuple[int, int, float]:
    """(row, token, difference) where it is greatest; a NaN is."""
    width = min(ours.shape[1], theirs.shape[1])
    apart = (ours[:, :width] - theirs[:, :width]).abs()
    worst = apart.nan_to_num(nan=float("inf")).flatten().argmax() if apart.numel() else 0
    row, token = divmod(int(worst), max(1, width))
    return row, token, float(apart[row, token]) if apart.numel() else 0.0


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
            yield _Whose("grad_norm", step, model, model, None, k).number(value)


def _trained_gaps(a: StepRecord, b: StepRecord, step: int, model: str, k: int) -> Iterator[Gap]:
    """Of the samples that both trained: one may leave out those without loss."""
    key = f"{model}/{k}"
    if key not in a.trained_rows or key not in b.trained_rows:
        return
    ours, theirs = a.trained_rows[key], b.trained_rows[key]
    left, right = torch.isin(ours, theirs), torch.isin(theirs, ours)
    known = [name for name in _TRAINED if f"{key}/{name}" in a.trained]
    costs = [name for name in _names(a, key) if name.startswith(_LOSS)]
    for name in _common([*known, *costs], _names(b, key)):
        kind, head = _TRAINED.get(name) or ("loss", _head_of(name))
        whose = _Whose(kind, step, name, model, head, k)
        x, y = a.trained[f"{key}/{name}"], b.trained[f"{key}/{name}"]
        if kind == "loss":
            yield whose.number(_of_sums(float(x.sum()), float(y.sum())))
        else:
            yield whose.gap(x[left], y[right], ours[left])


_TRAINED: Mapping[str, tuple[Kind, Head]] = {
    "advantages": ("target", "policy"),
    "returns": ("target", "value"),
    "logprob": ("logprob", "policy"),
    "values": ("value", "value"),
}
"""Of an optimizer step: what it reads first, then what the model says."""
_LOSS = "loss/"
_OF_VALUES = ("loss/value_loss", "loss/reward_loss")


def _names(record: StepRecord, key: str) -> list[str]:
    """What is known of an optimizer step."""
    return [k.removeprefix(f"{key}/") for k in record.trained if k.startswith(f"{key}/")]


def _head_of(cost: str) -> Head:
    return "value" if cost in _OF_VALUES else "policy"


def _of_sums(x: float, y: float) -> float:
    """Relative only above 1: a policy's loss may be a sum of next to nothing."""
    return abs(x - y) / max(abs(x), abs(y), 1.0)


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
