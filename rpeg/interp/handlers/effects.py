"""Measuring, and what a run would have written: eval, eval_loss, checkpoint, export, stop."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from xdsl.ir import Operation

from rpeg.interp.errors import InterpreterError
from rpeg.interp.frame import Frame, Handler
from rpeg.interp.handlers.sampling import single_turn
from rpeg.interp.rectangle import Rectangle
from rpeg.interp.sampler import SamplingSettings, sample
from rpeg.interp.values import Weights
from rpeg.ir.naming import name_of
from rpeg.ir.ops import effects as ops
from rpeg.runtime.data import DemoData, PromptData
from rpeg.runtime.verifiers import Verifier


def evaluate(op: ops.EvalOp, frame: Frame) -> tuple[float]:
    """Mean reward over the first `limit` rows, always by sampling: an oracle has no say in it."""
    single_turn(op, op.int_of("max_turns"), len(op.tools))
    verifier = frame.value(op.scorer)
    if not isinstance(verifier, Verifier):
        raise InterpreterError.at(op, "the reference interpreter scores with verifiers only")
    settings = SamplingSettings(
        n=op.int_of("n"),
        max_tokens=op.int_of("max_tokens"),
        temperature=op.float_of("temperature"),
        top_p=1.0,
        stop=(),
        run_seed=frame.around.seed,
        seed=op.int_of("seed"),
    )
    prompts, _ = frame.read(op.prompts, PromptData).all(_limit(op))
    y, _ = sample(frame.read(op.weights, Weights), prompts, settings)
    return (_report(op, frame, float(verifier.score(y).double().mean())),)


@torch.no_grad()
def evaluate_loss(op: ops.EvalLossOp, frame: Frame) -> tuple[float]:
    """Mean cross-entropy over the first `limit` rows, in nats a completion token."""
    weights = frame.read(op.weights, Weights)
    demos, _ = frame.read(op.examples, DemoData).all(_limit(op))
    rows = Rectangle.of(demos, weights.model.network.tokenizer)
    out = weights.model.outputs(weights.tensors, rows)
    return (_report(op, frame, float(-out.logprob.double().sum() / out.mask.sum())),)


def _limit(op: ops.EvalOp | ops.EvalLossOp) -> int | None:
    return None if op.limit is None else op.int_of("limit")


def _report(op: ops.EvalOp | ops.EvalLossOp, frame: Frame, value: float) -> float:
    frame.record.metrics[name_of(op.metric)] = value
    return value


def checkpoint(op: ops.CheckpointOp, frame: Frame) -> tuple[()]:
    """Noted, not written: an interpreted run starts at step 0."""
    frame.record.events.append("checkpoint")
    return ()


def export(op: ops.ExportOp, frame: Frame) -> tuple[()]:
    """Noted, not written."""
    model = frame.read(op.weights, Weights).model.name
    frame.record.events.append(f"export {model} to {op.text_of('to')}")
    return ()


def stop(op: ops.StopOp, frame: Frame) -> tuple[()]:
    """Ends the run after this step if the metric is above the bound."""
    if frame.read(op.metric, float) > op.float_of("above"):
        frame.record.events.append("stop")
        frame.stopped = True
    return ()


HANDLERS: Mapping[type[Operation], Handler] = {
    ops.EvalOp: evaluate,
    ops.EvalLossOp: evaluate_loss,
    ops.CheckpointOp: checkpoint,
    ops.ExportOp: export,
    ops.StopOp: stop,
}
