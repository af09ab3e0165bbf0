"""Measuring, and what a run would have written: eval, eval_loss, checkpoint, export, stop."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from xdsl.ir import Operation

from rpeg.interp.environments import Environment, Episodes
from rpeg.interp.frame import Frame, Handler
from rpeg.interp.handlers.sampling import environment_of, tools_of
from rpeg.interp.rectangle import Rectangle
from rpeg.interp.sampler import SamplingSettings
from rpeg.interp.values import Weights
from rpeg.interp.writer import Writer
from rpeg.ir.ops import effects as ops
from rpeg.ir.text.naming import name_of
from rpeg.runtime import losses
from rpeg.runtime.data import DemoData, PairData, PromptData
from rpeg.runtime.trajectories import Pairs
from rpeg.runtime.verifiers import Verifier


def evaluate(op: ops.EvalOp, frame: Frame) -> tuple[float]:
    """Mean reward over the first `limit` rows, always by sampling, never from the oracle."""
    weights, scorer = frame.read(op.weights, Weights), frame.value(op.scorer)
    if isinstance(scorer, Environment):
        scorer = scorer.read_by(weights.model.network.tokenizer)
    assert isinstance(scorer, Verifier | Episodes), "a verified scorer is one of these"
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
    tools, talk = tools_of(op.tools, frame), environment_of(op, op.tools, weights, frame)
    writer = Writer(weights, tools, op.int_of("max_turns"), environment=talk)
    y, _ = writer.write(prompts, settings)
    return (_report(op, frame, float(scorer.score(y).double().mean())),)


@torch.no_grad()
def evaluate_loss(op: ops.EvalLossOp, frame: Frame) -> tuple[float]:
    """Mean cross-entropy over the first `limit` rows, in nats per completion token; of pairs, the
    mean loss of a reward model or of dpo, and how often the chosen response is ahead.
    """
    weights, data = frame.read(op.weights, Weights), frame.value(op.examples)
    if isinstance(data, PairData):
        scores = _pair_scores(op, weights, data.all(_limit(op))[0], frame)
        accuracy = (losses.margin(scores) > 0).double().mean()
        frame.record.metrics[f"{name_of(op.metric)}_accuracy"] = float(accuracy)
        return (_report(op, frame, float(losses.reward_model(scores).double().mean())),)
    demos, _ = frame.read(op.examples, DemoData).all(_limit(op))
    rows = Rectangle.of(demos, weights.model.network.tokenizer)
    out = weights.model.outputs(weights.tensors, rows)
    return (_report(op, frame, float(-out.logprob.double().sum() / out.mask.sum())),)


def _pair_scores(op: ops.EvalLossOp, weights: Weights, pairs: Pairs, frame: Frame) -> Tensor:
    """[2 pairs] a reward model's scores, or a policy's implicit rewards."""
    rows = Rectangle.of(pairs, weights.model.network.tokenizer)
    out = weights.model.outputs(weights.tensors, rows)
    if op.reference is None:
        return out.values.sum(dim=1)
    reference = frame.read(op.reference, Weights)
    behind = reference.model.outputs(reference.tensors, rows).logprob
    return losses.implicit_rewards(out.logprob, behind, out.mask, beta=op.float_of("beta"))


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
