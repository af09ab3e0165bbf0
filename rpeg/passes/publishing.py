"""Publishing, made explicit: new weights on their way to the engines of each pool."""

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.builder import Builder
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.rewriter import InsertPoint

from rpeg.ir.base import RpegOp
from rpeg.ir.ops.effects import EvalOp
from rpeg.ir.ops.movement import POOL, PublishOp, model_of, pool_of
from rpeg.ir.ops.sampling import GenerateOp, StaleOp
from rpeg.ir.ops.step import StepOp
from rpeg.ir.ops.updates import UpdateOp
from rpeg.ir.types.values import WeightsType


def publish(op: StepOp) -> int:
    """Makes the publishing of each trained model explicit, to each pool that samples from it;
    returns the number of publishes.
    """
    number = 0
    for trained in _trained(op):
        engines = (r for r in op.walk() if isinstance(r, GenerateOp | EvalOp))
        readers = [r for r in engines if model_of(r) == trained.update.makes()]
        for pool in dict.fromkeys(map(pool_of, readers)):
            _publish_to(op, trained, [r for r in readers if pool_of(r) == pool])
            number += 1
    return number


@dataclass(frozen=True)
class _Trained:
    """A model that a step trains."""

    update: UpdateOp
    after: SSAValue
    """Its weights as the step ends: the update's, or those of the `every` around it."""


def _trained(op: StepOp) -> list[_Trained]:
    updates = {o.makes(): o for o in op.walk() if isinstance(o, UpdateOp)}
    ends = (end for end in op.ending.operands if isinstance(end.type, WeightsType))
    pairs = [(end, updates.get(end.type.owner)) for end in ends]  # type: ignore[attr-defined]
    return [_Trained(update, end) for end, update in pairs if update is not None]


def _publish_to(op: StepOp, trained: _Trained, readers: Sequence[RpegOp]) -> None:
    """To the pool of some readers: a state, which an engine that other pools share the work with
    has from step to step; evals of a pool that only trains get the weights when they run.
    """
    away = any(
        isinstance(o, GenerateOp) and pool_of(o) != pool_of(trained.update) for o in op.walk()
    )
    measures = all(isinstance(r, EvalOp) and r.weights is trained.after for r in readers)
    if away and measures:
        for reader in readers:
            _publish_for(reader, trained)
    else:
        _publish_one(op, trained, readers)


def _publish_for(reader: RpegOp, trained: _Trained) -> None:
    made = _published_to(_pool(reader), trained, InsertPoint.before(reader))
    reader.operands[0] = made.published


def _publish_one(op: StepOp, trained: _Trained, readers: Sequence[RpegOp]) -> None:
    block, update = op.body.block, trained.update
    register = block.insert_arg(update.weights.type, len(block.args))
    register.name_hint = f"{update.makes()}_published"
    maker = trained.after.owner
    assert isinstance(maker, Operation), "an update makes what the step ends with"
    made = _published_to(_pool(readers[0]), trained, InsertPoint.after(maker))
    for reader in readers:
        read = reader.operands[0]
        if isinstance(read.owner, StaleOp):  # older versions are those of the register
            read.owner.operands[0] = register
        else:
            reader.operands[0] = _published(read, register, made.results[0], trained)
    ending = op.ending
    ending.operands = [*ending.operands, made.results[0]]


def _published_to(pool: str, trained: _Trained, at: InsertPoint) -> PublishOp:
    made = PublishOp.make([trained.after], location=trained.update.location)
    made.published.name_hint = f"{trained.update.makes()}_published"
    made.attributes[POOL] = StringAttr(pool)
    return Builder(at).insert(made)


def _pool(reader: RpegOp) -> str:
    pool = pool_of(reader)
    assert pool is not None, "annotated stages have a pool"
    return pool


def _published(
    read: SSAValue, register: BlockArgument, published: SSAValue, trained: _Trained
) -> SSAValue:
    """What an engine reads: the register as the step starts, or what this step publishes."""
    if read is trained.after:
        return published
    held = read.type
    if isinstance(held, WeightsType) and held.lag == (0, 0):
        return register
    return read
