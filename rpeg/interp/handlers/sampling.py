"""Reading data, weights and trajectories: batch, generate, score, logprob, values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor
from xdsl.ir import Attribute, Operation, SSAValue

from rpeg.interp.environments import Environment, Episodes
from rpeg.interp.errors import InterpreterError
from rpeg.interp.frame import Frame, Handler
from rpeg.interp.judge import Judge
from rpeg.interp.network import Outputs
from rpeg.interp.rectangle import Rectangle
from rpeg.interp.sampler import SamplingSettings
from rpeg.interp.tools import Tool
from rpeg.interp.values import Cursor, OnPolicy, Weights
from rpeg.interp.versions import Window, filled
from rpeg.interp.writer import Writer
from rpeg.ir.ops import sampling as ops
from rpeg.ir.rules.staleness import WORDS
from rpeg.ir.text.naming import name_of
from rpeg.ir.types.values import TrajectoriesType
from rpeg.runtime.batches.spelling import spelled
from rpeg.runtime.trajectories import Demos, Pairs, Prompts, Trajectories
from rpeg.runtime.verifiers import Verifier


def get(op: ops.GetOp, frame: Frame) -> tuple[object]:
    """A declared thing."""
    return (frame.around.declared[op.symbol_name],)


def stale(op: ops.StaleOp, frame: Frame) -> tuple[Window]:
    """The versions of the window; the reader chooses."""
    held = frame.older[frame.read(op.weights, Weights).model.name]
    return (Window(held, op.int_of("low"), op.int_of("high")),)


def batch(op: ops.BatchOp, frame: Frame) -> tuple[Prompts | Demos | Pairs, Cursor]:
    """The next rows, and the cursor behind them."""
    cursor = frame.read(op.source, Cursor)
    cursor.data.load_state_dict({**cursor.data.state_dict(), "cursor": cursor.position})
    size = op.int_of("size")
    rows = cursor.data.batch(size=size, order=op.text_of("order"), seed=op.int_of("seed"))
    return rows, Cursor(cursor.data, cursor.position + size)


def generate(op: ops.GenerateOp, frame: Frame) -> tuple[Trajectories, Tensor]:
    """What the oracles say: of versions where there is a window, then of tokens."""
    place, prompts = frame.place(op.trajectories), frame.read(op.prompts, Prompts)
    settings, window = _settings(op, frame), _window(op, frame)
    writer = _writer(op, frame, window, len(prompts.rows) * settings.n)
    y, logprobs = frame.around.oracle.generate(place, writer, prompts, settings)
    if window is not None:
        window.check(filled(y.versions), place.name)
        y = replace(y, mask=window.trained(y.versions, y.mask, y.n))
    frame.record.trajectories[place.name] = y
    frame.record.sampled[place.name] = logprobs
    frame.record.makers[place.name] = writer.weights.model.name
    return y, logprobs


def _settings(op: ops.GenerateOp, frame: Frame) -> SamplingSettings:
    stop = op.value("stop") or ()
    assert isinstance(stop, tuple)
    return SamplingSettings(
        n=op.int_of("n"),
        max_tokens=op.int_of("max_tokens"),
        temperature=op.float_of("temperature"),
        top_p=op.float_of("top_p"),
        stop=tuple(map(str, stop)),
        run_seed=frame.around.seed,
        seed=op.int_of("seed"),
    )


def _window(op: ops.GenerateOp, frame: Frame) -> Window | None:
    """The window that it reads, with what is said of it; None of one exact version."""
    held = frame.value(op.weights)
    if not isinstance(held, Window):
        return None
    said = {name: op.text_of(name) for name in WORDS if name in op.properties}
    return replace(held, **cast(Any, said))


def _writer(op: ops.GenerateOp, frame: Frame, window: Window | None, samples: int) -> Writer:
    tools, turns = tools_of(op.tools, frame), op.int_of("max_turns")
    newest = frame.read(op.weights, Weights) if window is None else window.held[window.newest]
    talk = environment_of(op, op.tools, newest, frame)
    if window is None:
        return Writer(newest, tools, turns, environment=talk)
    place, tokens = frame.place(op.trajectories), op.int_of("max_tokens")
    chosen = window.settled(frame.around.versions.versions(place, window, samples, tokens))
    window.check(chosen, place.name)
    return Writer(newest, tools, turns, window.held, chosen, environment=talk)


def tools_of(tools: Sequence[SSAValue], frame: Frame) -> Mapping[str, Tool]:
    """The functions that a policy may call, by name."""
    named = {name_of(tool): frame.value(tool) for tool in tools}
    return cast(Mapping[str, Tool], {n: t for n, t in named.items() if callable(t)})


def environment_of(
    op: Operation, tools: Sequence[SSAValue], policy: Weights, frame: Frame
) -> Episodes | None:
    """What answers a policy's turns. Raises InterpreterError where it does not do so alone."""
    held = [frame.value(tool) for tool in tools]
    found = next((each for each in held if isinstance(each, Environment)), None)
    if found is None:
        return None
    if len(held) > 1:
        text = f"`{found.name}` answers every turn: give it without other tools"
        raise InterpreterError.at(op, text)
    return found.read_by(policy.model.network.tokenizer)


def score(op: ops.ScoreOp, frame: Frame) -> tuple[Tensor]:
    """What the oracle says of a verifier; a reward model's own scores, without gradient."""
    scorer = frame.value(op.scorer)
    if isinstance(scorer, Weights):
        return (_scores(op, scorer, frame),)
    place, y = frame.place(op.reward), frame.read(op.trajectories, Trajectories)
    if isinstance(scorer, Environment):
        scorer = scorer.read_by(_policy_of(op.trajectories.type, frame).model.network.tokenizer)
    assert isinstance(scorer, Verifier | Judge | Episodes), "a verified scorer is one of these"
    reward = frame.around.oracle.score(place, scorer, y)
    frame.record.rewards[place.name] = reward
    frame.record.makers[place.name] = scorer.name
    return (reward,)


@torch.no_grad()
def _scores(op: ops.ScoreOp, scorer: Weights, frame: Frame) -> Tensor:
    """[samples] of a reward model, [samples, max_tokens] of a process-reward model."""
    model, y = scorer.model, frame.read(op.trajectories, Trajectories)
    read = spelled(y, model.network.tokenizer)
    if model.role == "process_reward" and read is not y:
        raise InterpreterError.at(op, f"`{model.name}` has another tokenizer than the policy")
    values = model.outputs(scorer.tensors, Rectangle.of(read, model.network.tokenizer)).values
    scores = values.sum(dim=1) if model.role == "reward" else values
    name = name_of(op.reward)
    frame.record.values[name] = scores.view(len(scores), -1)
    frame.record.makers[name] = model.name
    return scores


def logprob(op: ops.LogprobOp, frame: Frame) -> tuple[Tensor]:
    """Log-probs under the operand's weights, without gradient."""
    logprobs = _outputs(op.weights, op.trajectories, frame).logprob
    frame.record.logprobs[_noted(op.logprobs, op.weights, frame)] = logprobs
    return (logprobs,)


def on_policy_logprob(op: ops.OnPolicyLogprobOp, frame: Frame) -> tuple[OnPolicy]:
    """Known to the losses only, which take the new log-probs, detached."""
    return (OnPolicy(),)


def values(op: ops.ValuesOp, frame: Frame) -> tuple[Tensor]:
    """The critic's values, without gradient."""
    found = _outputs(op.weights, op.trajectories, frame).values
    frame.record.values[_noted(op.values, op.weights, frame)] = found
    return (found,)


def _noted(result: SSAValue, weights: SSAValue, frame: Frame) -> str:
    """The name of what a forward pass says, whose maker the step's record notes."""
    name = frame.title(result)
    frame.record.makers[name] = frame.read(weights, Weights).model.name
    return name


@torch.no_grad()
def _outputs(weights: SSAValue, trajectories: SSAValue, frame: Frame) -> Outputs:
    held, batch = frame.read(weights, Weights), frame.value(trajectories)
    assert isinstance(batch, Trajectories | Pairs)
    _share_tokenizer(held, trajectories.type, frame)
    rows = Rectangle.of(batch, held.model.network.tokenizer)
    return held.model.outputs(held.tensors, rows)


def _share_tokenizer(reader: Weights, y: Attribute, frame: Frame) -> None:
    """Raises InterpreterError if the ids of y stand for other tokens to the model that reads it."""
    if not isinstance(y, TrajectoriesType):
        return
    policy = _policy_of(y, frame)
    if not reader.model.network.tokenizer.same_ids(policy.model.network.tokenizer):
        raise InterpreterError(
            f"`{reader.model.name}` reads the tokens of `{y.owner}`, but has another tokenizer: "
            "take a model of the same family, whose tokenizer.json has the same tokens"
        )


def _policy_of(y: Attribute, frame: Frame) -> Weights:
    """The policy that trajectories are sampled from, as it is declared."""
    assert isinstance(y, TrajectoriesType)
    policy = frame.around.declared[y.owner]
    assert isinstance(policy, Weights), "a verified policy is a model"
    return policy


HANDLERS: Mapping[type[Operation], Handler] = {
    ops.GetOp: get,
    ops.StaleOp: stale,
    ops.BatchOp: batch,
    ops.GenerateOp: generate,
    ops.ScoreOp: score,
    ops.LogprobOp: logprob,
    ops.OnPolicyLogprobOp: on_policy_logprob,
    ops.ValuesOp: values,
}
