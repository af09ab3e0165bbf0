"""Making the next version of a state: update, copy, ema, kl_controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from xdsl.ir import Operation

from rpeg.interp.errors import InterpreterError
from rpeg.interp.frame import Frame, Handler
from rpeg.interp.network import Outputs, Tensors
from rpeg.interp.optimizer import Session
from rpeg.interp.rectangle import Rectangle
from rpeg.interp.values import LossTerm, Model, OptimizerState, Weights
from rpeg.ir.ops import updates as ops
from rpeg.runtime.batches.batching import minibatches, together
from rpeg.runtime.losses import Aggregation, Totals, adapted_coef, loss_weights, summed_kl

Told = dict[str, Tensor]
"""Of some rows: what `StepRecord.trained` keeps of an optimizer step, by name."""


def update(op: ops.UpdateOp, frame: Frame) -> tuple[Weights, OptimizerState]:
    """epochs x minibatches optimizer steps on the sum of the losses."""
    old, state = frame.read(op.weights, Weights), frame.read(op.optimizer, OptimizerState)
    if old.model.optim is None:
        raise InterpreterError.at(op, f"`{old.model.name}` has no optimizer: add optim=adamw(...)")
    session = Session(old.model.trainable(old.tensors), state.moments, old.model.optim)
    lr = old.model.optim.rate(old.version, frame.around.horizon)
    terms = [frame.read(loss, LossTerm) for loss in op.losses]
    if any(term.batch is not terms[0].batch for term in terms):
        raise InterpreterError.at(op, "the reference interpreter trains on one batch an update")
    rows = Rectangle.of(terms[0].batch, old.model.network.tokenizer)
    cut = partial(frame.microbatches, op, rows)
    training = Training(old, session, terms, rows, _aggregation(op), lr, cut)
    for epoch in range(op.int_of("epochs")):
        for chosen in _minibatches(op, frame, old, rows, epoch):
            training.step(chosen)
    training.report(frame)
    return (
        Weights(old.model, {**old.tensors, **session.tensors()}, old.version + 1),
        OptimizerState(session.moments()),
    )


@dataclass
class Training:
    """The optimizer steps of one update, and what it notes of them."""

    old: Weights
    session: Session
    terms: Sequence[LossTerm]
    rows: Rectangle
    agg: Aggregation
    lr: float
    cut: Callable[[Tensor], Sequence[Tensor]]
    """Rows of a minibatch -> those that go through the model together, part by part."""

    def __post_init__(self) -> None:
        self.losses: list[float] = []
        self.grad_norms: list[float] = []
        self.rows_of: list[Tensor] = []
        self.told_of: list[Told] = []

    def step(self, chosen: Tensor) -> None:
        """One optimizer step on the minibatch of these rows [k]."""
        lengths = self.rows.mask[chosen].sum(dim=1)
        totals = Totals(tokens=int(lengths.sum()), sequences=int((lengths > 0).sum()))
        parts = self.cut(chosen)
        told: list[Told] = []
        self.losses.append(0.0)
        norm = self.session.step((self._loss(p, totals, told) for p in parts), self.lr)
        self.grad_norms.append(norm)
        self._note(torch.cat(list(parts)), told)

    def _loss(self, rows: Tensor, totals: Totals, told: list[Told]) -> Tensor:
        """What these rows add to the loss of a minibatch; notes it, and what was said and cost."""
        now = {**self.old.tensors, **self.session.parameters}
        out = self.old.model.outputs(now, self.rows.select(rows))
        weights = loss_weights(out.mask, self.agg, totals)
        costs = [term.per_token(out, rows) * weights for term in self.terms]
        loss = torch.stack(costs).sum()
        self.losses[-1] += float(loss.detach())
        told.append(self._told(out, rows, [cost.detach() for cost in costs]))
        return loss

    def _told(self, out: Outputs, rows: Tensor, costs: Sequence[Tensor]) -> Told:
        """Of these rows, what a step's record keeps in `trained`."""
        said = {"logprob": out.logprob, "values": out.values}
        told = {name: found.detach() for name, found in said.items() if found.numel()}
        for term, cost in zip(self.terms, costs, strict=True):
            told |= {name: t[rows].reshape(len(rows), -1) for name, t in term.targets.items()}
            shared = len(rows) // len(cost)
            each = cost.reshape(len(cost), -1).sum(dim=1, keepdim=True) / shared
            name = f"loss/{term.name}"
            told[name] = told.get(name, 0.0) + each.repeat_interleave(shared, dim=0)
        return told

    def _note(self, chosen: Tensor, told: Sequence[Told]) -> None:
        """What an optimizer step trains on, in the order of the samples."""
        order = chosen.argsort()
        self.rows_of.append(chosen[order])
        names = told[0]
        self.told_of.append({n: torch.cat([part[n] for part in told])[order] for n in names})

    def report(self, frame: Frame) -> None:
        """Writes what it noted into the step's record."""
        frame.record.losses[self.old.model.name] = self.losses
        frame.record.grad_norms[self.old.model.name] = self.grad_norms
        for k, (rows, told) in enumerate(zip(self.rows_of, self.told_of, strict=True)):
            key = f"{self.old.model.name}/{k}"
            frame.record.trained_rows[key] = rows
            frame.record.trained |= {f"{key}/{name}": found for name, found in told.items()}


def _minibatches(
    op: ops.UpdateOp, frame: Frame, old: Weights, rows: Rectangle, epoch: int
) -> list[Tensor]:
    seeds = (frame.around.seed, op.int_of("seed"), old.version, epoch)
    shuffle, count = bool(op.value("shuffle")), op.int_of("minibatches")
    units = [len(rows.ids) // rows.together]
    parts = minibatches(units, 0, count, shuffle=shuffle, seeds=seeds)
    return [together(part, rows.together) for part in parts]


def _aggregation(op: ops.UpdateOp) -> Aggregation:
    agg = op.value("agg")
    if isinstance(agg, dict):
        tokens = agg["tokens"]
        assert isinstance(tokens, int)
        return ("constant", tokens)
    return str(agg)


def copy(op: ops.CopyOp, frame: Frame) -> tuple[Weights]:
    """Another model's weights under the target's name."""
    source = frame.read(op.source, Weights)
    target = frame.around.declared[op.makes()]
    assert isinstance(target, Weights)
    return (Weights(target.model, _as(target.model, source), frame.step + 1),)


def _as(target: Model, source: Weights) -> Tensors:
    """The source's weights as another model holds them: merged, unless both have adapters."""
    apart = target.lora is not None
    return source.tensors if apart else source.model.effective(source.tensors)


def ema(op: ops.EmaOp, frame: Frame) -> tuple[Weights]:
    """decay x average + (1 - decay) x source."""
    average, source = frame.read(op.average, Weights), frame.read(op.source, Weights)
    decay, new = op.float_of("decay"), _as(average.model, source)
    tensors = {
        name: decay * tensor + (1.0 - decay) * new[name] for name, tensor in average.tensors.items()
    }
    return (Weights(average.model, tensors, average.version + 1),)


def kl_controller(op: ops.KlControllerOp, frame: Frame) -> tuple[float]:
    """See `losses.adapted_coef`."""
    y = frame.trajectories(op.policy)
    total, responses = summed_kl(frame.tensor(op.policy), frame.tensor(op.reference), y.mask)
    coef = adapted_coef(
        frame.read(op.coef, float),
        total / max(responses, 1),
        len(y.rows),
        target=op.float_of("target"),
        horizon=op.int_of("horizon"),
    )
    return (coef,)


HANDLERS: Mapping[type[Operation], Handler] = {
    ops.UpdateOp: update,
    ops.CopyOp: copy,
    ops.EmaOp: ema,
    ops.KlControllerOp: kl_controller,
}
