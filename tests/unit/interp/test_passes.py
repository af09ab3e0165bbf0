"""Rewrites that change the execution only are held to the numbers on the same trajectories."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from rpeg.interp import Interpreter, Parity, Replay, compare
from rpeg.ir.ops.losses import KlLossOp, PpoClipOp
from rpeg.ir.ops.sampling import LogprobOp, OnPolicyLogprobOp
from rpeg.ir.ops.updates import UpdateOp
from rpeg.passes.rpeg_canonicalize import RpegCanonicalizePass
from rpeg.passes.rpeg_eliminate_old_logprob import RpegEliminateOldLogprobPass
from rpeg.passes.rpeg_eliminate_reference import RpegEliminateReferencePass
from rpeg.runtime.recordings.recording import Recording
from tests.unit.interp.pipelines import grpo

Interpret = Callable[..., Interpreter]


def rewritten(module: ModuleOp, *passes: ModulePass) -> ModuleOp:
    copy = module.clone()
    for each in passes:
        each.apply(Context(), copy)
        copy.verify()
    return copy


def logprob_ops(module: ModuleOp) -> int:
    return sum(isinstance(op, LogprobOp) for op in module.walk())


def parity(original: ModuleOp, other: ModuleOp, interpret: Interpret) -> Parity:
    """Of three steps of both on the original's trajectories."""
    record: Recording = interpret(original).run(3)
    return compare(record, interpret(other, oracle=Replay(record)).run(3))


@pytest.mark.parametrize(
    ("module", "passes", "removed"),
    [
        (grpo(), [RpegCanonicalizePass()], 0),
        (grpo(minibatches=1), [RpegEliminateOldLogprobPass()], 1),
        (grpo(coef=0.0), [RpegEliminateReferencePass()], 1),
        (
            grpo(coef=0.0, minibatches=1),
            [RpegEliminateReferencePass(), RpegEliminateOldLogprobPass(), RpegCanonicalizePass()],
            2,
        ),
    ],
    ids=["canonicalize", "old_logprob", "reference", "all"],
)
def test_numbers_stay(
    module: ModuleOp, passes: list[ModulePass], removed: int, interpret: Interpret
) -> None:
    other = rewritten(module, *passes)
    assert logprob_ops(module) - logprob_ops(other) == removed
    found = parity(module, other, interpret)
    assert found.within(Parity(logprob=1e-5, grad_norm=1e-5, weights=1e-6)), found


def test_passes_refrain_where_numbers_would_change() -> None:
    assert logprob_ops(rewritten(grpo(), RpegEliminateOldLogprobPass())) == 2
    assert logprob_ops(rewritten(grpo(coef=0.5), RpegEliminateReferencePass())) == 2


def test_a_pass_that_ignored_the_second_minibatch_would_be_caught(interpret: Interpret) -> None:
    original = grpo(minibatches=2)
    wrong = original.clone()
    loss = next(op for op in wrong.walk() if isinstance(op, PpoClipOp))
    new = OnPolicyLogprobOp.make([loss.trajectories])
    block = loss.parent_block()
    assert block is not None
    block.insert_op_before(new, loss)
    loss.operands[2] = new.results[0]
    assert not parity(original, wrong, interpret).within(Parity())


def test_a_pass_that_dropped_a_live_reference_would_be_caught(interpret: Interpret) -> None:
    original = grpo(coef=0.5)
    wrong = original.clone()
    update = next(op for op in wrong.walk() if isinstance(op, UpdateOp))
    kept = [loss for loss in update.losses if not isinstance(loss.owner, KlLossOp)]
    update.operands = [update.weights, update.optimizer, *kept]
    found = parity(original, wrong, interpret)
    assert found.grad_norm > 1e-3
    assert not found.within(Parity())
