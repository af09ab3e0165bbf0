"""What the operations of L1 do, and how the stages of L0 run where they are placed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from xdsl.ir import Operation, SSAValue

from rpeg.interp.errors import InterpreterError
from rpeg.interp.frame import Handler
from rpeg.interp.handlers import HANDLERS as COMPUTE
from rpeg.interp.handlers import updates
from rpeg.interp.l1.frame import Part, PlacedFrame, bounded, shares
from rpeg.interp.l1.rows import Chunk, Chunks, count, select
from rpeg.interp.l1.shards import Home, Shards
from rpeg.interp.values import LossTerm, OptimizerState, Weights
from rpeg.ir.ops import effects, sampling
from rpeg.ir.ops.movement import PublishOp, ReshardOp, TransferOp
from rpeg.ir.ops.streams import JoinOp, StreamOp
from rpeg.ir.ops.updates import UpdateOp
from rpeg.runtime.trajectories import Batch, Pairs, Prompts, Trajectories

# ---- stages


def by_rows(op: Operation, frame: PlacedFrame) -> Sequence[object]:
    """Every replica works on its share of the rows, one micro-batch after the other."""
    at = frame.home_of(op)
    if at is None:
        return COMPUTE[type(op)](op, frame)
    made = op.int_of("n") if isinstance(op, sampling.GenerateOp) else 1
    parts = []
    for replica, rows in _work(op, frame, at):
        read = {v: _part_of(frame.value(v), op, at, replica, rows) for v in op.operands}
        results = (rows.unsqueeze(1) * made + torch.arange(made)).flatten()
        parts.append(Part(results, read))
    return frame.whole(op, parts, COMPUTE)


def _work(op: Operation, frame: PlacedFrame, at: Home) -> Iterator[tuple[int, Tensor]]:
    """(replica, rows) of what goes through a model at once."""
    batch = frame.value(op.operands[1])
    assert isinstance(batch, Batch | Prompts), "stages read a batch behind the model"
    rows, lengths = count(batch), torch.ones(count(batch))
    unit = 2 if isinstance(batch, Pairs) else 1
    if isinstance(batch, Trajectories):
        unit = batch.n if rows % batch.n == 0 else 1
        lengths = torch.tensor([len(ids) for ids in batch.prompt_ids]) + batch.trained_lengths
    for replica, share in enumerate(shares(rows, unit, at.replicas)):
        yield from ((replica, part) for part in bounded(op, share, lengths))


def _part_of(held: object, op: Operation, at: Home, replica: int, rows: Tensor) -> object:
    if isinstance(held, Weights):
        return replace(held, tensors=reading(held, at, op).of_replica(replica))
    return select(held, rows)


def measured(op: Operation, frame: PlacedFrame) -> Sequence[object]:
    """A measurement is one number of all rows."""
    at, held = frame.home_of(op), frame.value(op.operands[0])
    if at is None or not isinstance(held, Weights):
        return COMPUTE[type(op)](op, frame)
    weights = replace(held, tensors=reading(held, at, op))
    return COMPUTE[type(op)](op, frame.reading({op.operands[0]: weights}))


def update(op: UpdateOp, frame: PlacedFrame) -> tuple[Weights, OptimizerState]:
    """An update of shards: gradients of all replicas, chunks and micro-batches are summed."""
    losses = _joined(op, frame)
    old, at = frame.read(op.weights, Weights), frame.home_of(op)
    if at is None:
        return updates.update(op, frame.reading(losses))
    shards = reading(old, at, op)
    if (name := shards.differing()) is not None:
        raise InterpreterError.at(op, f"{name} is not the same on the replicas of {at}")
    here = frame.reading({**losses, op.weights: replace(old, tensors=shards)})
    new, state = updates.update(op, here)
    return replace(new, tensors=Shards.cut(new.tensors, new.model.network.shape, at)), state


def _joined(op: UpdateOp, frame: PlacedFrame) -> dict[SSAValue, object]:
    """Losses that come in chunks, as one of each, of one batch."""
    chunked = {v: held for v in op.losses if isinstance(held := frame.value(v), Chunks)}
    terms = {v: _term(held) for v, held in chunked.items()}
    return {v: replace(t, batch=next(iter(terms.values())).batch) for v, t in terms.items()}


def _term(chunks: Chunks) -> LossTerm:
    whole = chunks.join()
    assert isinstance(whole, LossTerm)
    return whole


def reading(weights: Weights, at: Home, op: Operation) -> Shards:
    """Weights as a stage's ranks hold them. Raises InterpreterError if they are elsewhere."""
    held, shape = weights.tensors, weights.model.network.shape
    if len(held) != len(list(shape.tensors())):
        raise InterpreterError.at(op, f"`{weights.model.name}` has parts that no layout spreads")
    if not isinstance(held, Shards):  # loaded from its source, wherever it is wanted
        return Shards.cut(held, shape, at)
    if held.home == at:
        return held
    if not held.serves(at):
        raise InterpreterError.at(
            op,
            f"it runs {at}, and the weights of `{weights.model.name}` are {held.home}: "
            "add rpeg.reshard, or publish them there",
        )
    return held.at(at)


# ---- movement


def arrive(op: PublishOp | ReshardOp, frame: PlacedFrame) -> tuple[Weights]:
    """The weights, as boxes that went to the ranks of the operation's process group."""
    held, at = frame.read(op.weights, Weights), frame.home_of(op)
    if at is None:
        return (held,)
    tensors, shape = held.tensors, held.model.network.shape
    moved = tensors.at(at) if isinstance(tensors, Shards) else Shards.cut(tensors, shape, at)
    return (replace(held, tensors=moved),)


def transfer(op: TransferOp, frame: PlacedFrame) -> tuple[object]:
    """Rows are not held apart: only the process group changes."""
    return (frame.value(op.moved),)


def stream(op: StreamOp, frame: PlacedFrame) -> tuple[Chunks]:
    """The value in chunks, in an order that the timing says."""
    whole = frame.value(op.whole)
    assert isinstance(whole, Tensor | Trajectories)
    n = frame.trajectories(op.whole).n
    size = op.int_of("samples") if op.groups is None else op.int_of("groups") * n
    chunks = torch.arange(count(whole)).split(size)
    came = range(len(chunks)) if op.text_of("order") == "index" else None
    order = frame.timing.arrivals(len(chunks)) if came is None else came
    return (Chunks(tuple(Chunk(chunks[k], select(whole, chunks[k])) for k in order)),)


def join(op: JoinOp, frame: PlacedFrame) -> tuple[object]:
    """The whole, in the order of the samples."""
    return (frame.read(op.chunked, Chunks).join(),)


HANDLERS: Mapping[type[Operation], Handler] = {
    **COMPUTE,
    sampling.GenerateOp: by_rows,
    sampling.ScoreOp: by_rows,
    sampling.LogprobOp: by_rows,
    sampling.ValuesOp: by_rows,
    effects.EvalOp: measured,
    effects.EvalLossOp: measured,
    UpdateOp: update,
    PublishOp: arrive,
    ReshardOp: arrive,
    TransferOp: transfer,
    StreamOp: stream,
    JoinOp: join,
}
"""Every operation that runs within a step; buffers and windows are the machine's."""
