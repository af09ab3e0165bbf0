"""Completion order: a batch is the first groups that end, so that prompts start ahead of it.

Of each generate: where its samples are in flight, what fills that, and why it can't be.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from xdsl.builder import Builder
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute
from xdsl.rewriter import InsertPoint

from rpeg.ir.ops.movement import pool_of
from rpeg.ir.ops.sampling import BatchOp, GenerateOp
from rpeg.ir.ops.step import StepOp
from rpeg.ir.pools import trained_on
from rpeg.ir.rrt.program import AheadOp
from rpeg.ir.text.naming import name_of
from rpeg.ir.types.attributes import plain
from rpeg.ir.types.values import TrajectoriesType
from rpeg.passes.base import Problem
from rpeg.passes.programs.handlers import lower
from rpeg.passes.programs.program import Program, model_name


def problems(step: StepOp) -> Iterator[Problem]:
    """Why a step does not compile in completion order."""
    generates = [op for op in step.walk() if isinstance(op, GenerateOp)]
    if not generates:
        yield Problem(step, "order=completion is for what a generate samples, and this has none")
    counts = Counter(map(model_name, generates))
    for op in generates:
        why = _why_not(op, trained_on(step))
        if why is None and counts[model_name(op)] > 1:
            why = f"`{model_name(op)}` samples twice a step: its engine keeps one batch in flight"
        if why is not None:
            yield Problem(op, f"order=completion: {why}; or choose order=index")


def _why_not(op: GenerateOp, trained: Mapping[str, str]) -> str | None:
    pool = pool_of(op)
    here = [model for model, other in trained.items() if pool in (None, other)]
    if here or not trained:
        what = "its model" if not here or model_name(op) in here else f"`{here[0]}`"
        return f"samples where {what} trains: give the engine a pool of its own in a plan"
    if not isinstance(op.parent_op(), StepOp):
        return "the rounds of a collect, and what is inside of every, end in order"
    if not isinstance(op.prompts.owner, BatchOp):
        return "its prompts are not a batch of data"
    if len(list(op.prompts.uses)) > 1:
        name = name_of(op.prompts)
        return f"`{name}` is read elsewhere too, and the samples of a step have other prompts"
    return None


def declare(program: Program, op: GenerateOp) -> None:
    """What keeps samples in flight from step to step."""
    held, model = op.trajectories.type, model_name(op)
    assert isinstance(held, TrajectoriesType)
    title = name_of(op.trajectories)
    again = op.old_spans == plain("regenerate")
    settings: dict[str, Attribute | None] = {
        "name": StringAttr(title),
        "size": plain(held.prompts.data),
        "max_lag": plain(held.lag[1]),
        "bound": op.bound or plain("strict"),
        "overflow": op.overflow or plain("wait"),
        "again": plain(True) if again else None,
    }
    keywords = {"engine": program.engine(op), "weights": program.registers[model]}
    made = program.call(op, "Rollouts", program.run, keywords=keywords, settings=settings)
    made.results[0].name_hint = f"{title}_flight"
    program.flights[op] = made.results[0]


def offer(program: Program, op: GenerateOp) -> None:
    """The prompts that may start before the step's batch."""
    assert program.loop is not None and isinstance(op.prompts.owner, BatchOp)
    ahead = AheadOp.of(program.flights[op], program.loop.step)
    ahead.location = op.location
    program.builder.insert(ahead)
    inside = program.inside(Builder(InsertPoint.at_end(ahead.body.block)))
    lower(inside, op.prompts.owner)
    prompts = inside.value(op.prompts)
    inside.call(op, "offer", prompts, receiver=program.flights[op])
