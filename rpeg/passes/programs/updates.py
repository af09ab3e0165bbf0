"""Optimizer steps, and weights on their way to an engine."""

from xdsl.ir import Operation

from rpeg.ir.base import RpegOp
from rpeg.ir.ops.movement import PublishOp, pool_of
from rpeg.ir.ops.updates import KlControllerOp, UpdateOp
from rpeg.ir.rules.shares import shared
from rpeg.passes.programs.functions import groups_of, with_trajectories
from rpeg.passes.programs.handlers import compiles, divides, need
from rpeg.passes.programs.program import Cannot, Program, model_name


@compiles(UpdateOp)
def _update(program: Program, op: RpegOp) -> None:
    assert isinstance(op, UpdateOp)
    need(op, "routing", "free", "does not compile yet: leave it out")
    if len({loss.owner.operands[0] for loss in op.losses if isinstance(loss.owner, Operation)}) > 1:
        raise Cannot(op, "losses of several batches in one update do not compile yet")
    for found in shared(op):
        divides(op, found, model=op.makes())
    terms = [program.value(v) for v in op.losses]
    program.call(op, "update", *terms, receiver=program.model(op), settings=op.properties)


@compiles(KlControllerOp)
def _kl_controller(program: Program, op: RpegOp) -> None:
    assert isinstance(op, KlControllerOp)
    program.call(
        op,
        op.SURFACE,
        *with_trajectories(program, op.policy, op.reference),
        receiver=program.value(op.coef),
        keywords={"groups": groups_of(program, op.policy)},
        settings=op.properties,
    )


@compiles(PublishOp)
def _publish(program: Program, op: RpegOp) -> None:
    assert isinstance(op, PublishOp)
    publish(program, op)


def publish(program: Program, op: PublishOp) -> None:
    """To another pool, a push. Here, new weights for the engine as well."""
    model, pool = model_name(op), pool_of(op) or program.place.pool
    trainer = program.declared(model)
    if pool != program.place.pool:
        program.call(op, "publish", trainer, receiver=program.sent[model, pool])
        return
    program.call(op, "publish", trainer, receiver=program.registers[model])
    renew(program, op, model)


def renew(program: Program, at: Operation, model: str) -> None:
    """New weights are a pair for the engine: swap the weights, reset the prefix cache."""
    register, engine = program.registers[model], program.engines[model]
    program.call(at, "swap_weights", register, receiver=engine)
    program.call(at, "reset_prefix_cache", receiver=engine)


def receive(program: Program, at: Operation, model: str) -> None:
    """What the pool that trains has published, as old as the step allows."""
    assert program.loop is not None
    step = {"step": program.loop.step}
    program.call(at, "wait", receiver=program.registers[model], keywords=step)
    renew(program, at, model)
