"""How far ahead tasks run where generation and training share their processes.

A window of versions lets samples of step i + k be made of the weights of step i. The tasks that
make them run k steps ahead, so that the newest weights are just the oldest that the window allows;
a buffer keeps the batches until their step. What else reads such a batch's prompts would have to be
kept too, and is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xdsl.ir import BlockArgument, Operation, SSAValue

from rpeg.ir.ops.movement import pool_of
from rpeg.ir.ops.regions import CollectOp
from rpeg.ir.ops.sampling import GenerateOp, StaleOp
from rpeg.ir.ops.step import StepOp
from rpeg.ir.pools import pools_at
from rpeg.ir.rsched import label_of, reads, uses
from rpeg.ir.text.naming import name_of
from rpeg.ir.types.values import CursorType
from rpeg.passes.base import PassRefused, Problem

Ahead = Mapping[Operation, int]
"""Tasks that fill a buffer -> how many steps ahead they run."""


def steps_ahead(step: StepOp) -> Ahead:
    """The tasks of a step that run ahead of it. Raises PassRefused where they can't."""
    found: dict[Operation, int] = {}
    for op in step.body.block.ops:
        reaches = [r for g in _generates(op) if (r := _reach(step, g)) is not None]
        for task in _with_needs(op) if reaches else ():
            found[task] = max(*reaches, found.get(task, 0))
    problems = [*_kept(found), *_misread(step, found)]
    if problems:
        raise PassRefused.of(problems)
    return found


def _generates(op: Operation) -> Iterator[GenerateOp]:
    """Those whose batch waits in a buffer: itself, or what a collect gathers its groups from."""
    if isinstance(op, GenerateOp | CollectOp):
        yield from (inner for inner in op.walk() if isinstance(inner, GenerateOp))


def _reach(step: StepOp, op: GenerateOp) -> int | None:
    """How far the window of a generate reaches; None without one, or of another group's weights."""
    stale = op.weights.owner
    if not isinstance(stale, StaleOp):
        return None
    maker = _maker(step, stale.weights)
    same = maker is None or pools_at(maker) == (pool_of(op),)
    return stale.int_of("high") if same else None


def _maker(step: StepOp, state: SSAValue) -> Operation | None:
    """What makes the next version of a state."""
    assert isinstance(state, BlockArgument), "a window is of a state"
    end = step.ending.operands[state.index].owner
    return end if isinstance(end, Operation) else None


def _with_needs(op: Operation) -> Iterator[Operation]:
    """A task and those whose results it reads, directly or not."""
    yield op
    for value in uses(op):
        if isinstance(value.owner, Operation) and label_of(value.owner) is not None:
            yield from _with_needs(value.owner)


def _kept(ahead: Ahead) -> Iterator[Problem]:
    """What would have to be kept besides trajectories until their step."""
    for op, steps in ahead.items():
        if isinstance(op, GenerateOp | CollectOp):
            continue
        flows = [v for v in op.results if not isinstance(v.type, CursorType)]
        for value, reader in ((v, use.operation) for v in flows for use in v.uses):
            if label_of(reader) is not None and ahead.get(reader) != steps:
                yield Problem(
                    reader,
                    f"it reads `{name_of(value)}`, which is made {steps} steps ahead for samples "
                    "of older weights: take the same window, or a batch of its own",
                )


def _misread(step: StepOp, ahead: Ahead) -> Iterator[Problem]:
    """States that are not there yet so far ahead, or not as they would be without."""
    makers: dict[SSAValue, Operation | None] = {s: _maker(step, s) for s in step.states}
    for op, steps in ahead.items():
        for value, youngest, oldest in reads(op):
            maker = makers.get(value)
            if maker is None or youngest <= steps - ahead.get(maker, 0) <= oldest:
                continue
            if isinstance(value.type, CursorType):
                yield Problem(
                    maker,
                    f"it reads on where a batch was taken {steps} steps ahead, for samples of "
                    "older weights: give it data of its own",
                )
            else:
                yield Problem(
                    op,
                    f"it runs {steps} steps ahead, for samples of older weights, and reads "
                    f"`{name_of(value)}` of its own step, which is not there yet",
                )
