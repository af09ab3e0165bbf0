"""Dynamic sampling: the rounds of a collect, and the batch that they leave."""

from xdsl.builder import Builder
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, SSAValue
from xdsl.rewriter import InsertPoint

from rpeg.ir.base import RpegOp
from rpeg.ir.ops import regions as ops
from rpeg.ir.ops.sampling import GenerateOp
from rpeg.ir.rrt.calls import CallOp
from rpeg.ir.rrt.program import RoundsOp
from rpeg.ir.rules.shares import shared
from rpeg.ir.text.naming import trajectories_of
from rpeg.ir.types.attributes import plain
from rpeg.ir.types.values import CursorType, TokenFieldType, TrajectoriesType
from rpeg.passes.programs.handlers import compiles, divides, lower, title
from rpeg.passes.programs.program import Cannot, Program
from rpeg.passes.programs.sampling import lag_bound, windowed


@compiles(ops.CollectOp)
def _collect(program: Program, op: RpegOp) -> None:
    assert isinstance(op, ops.CollectOp)
    if waiting(op) is not None and program.place.at_home and not program.ahead:
        raise Cannot(op, "a collect of older weights runs ahead of its step: mark its task so")
    for found in shared(op):
        divides(op, found)
    rounds = program.builder.insert(RoundsOp.of(program.collects[op]))
    rounds.location = op.location
    inner = program.inside(Builder(InsertPoint.at_end(rounds.body.block)))
    *body, keep = op.body.block.ops
    for each in body:
        assert isinstance(each, RpegOp)
        lower(inner, each)
    assert isinstance(keep, ops.KeepOp)
    y = _one_batch(keep)
    fields = _fields(keep, y)
    things = [inner.value(v) for v in (keep.by, y, *fields)]
    inner.call(keep, "keep", *things, receiver=program.collects[op], settings={"where": keep.where})
    if not program.ahead:
        _results(program, op, keep, fields)


def take(program: Program, op: ops.CollectOp) -> None:
    """The batch that the step trains on is what the collect kept for it."""
    assert program.loop is not None
    step = {"step": program.loop.step}
    program.call(op, "take", receiver=program.collects[op], keywords=step)
    keep = op.body.block.last_op
    assert isinstance(keep, ops.KeepOp)
    _results(program, op, keep, _fields(keep, _one_batch(keep)))


def waiting(op: ops.CollectOp) -> GenerateOp | None:
    """The generate of a window whose groups wait for their step in the collect."""
    inside = (o for o in op.walk() if isinstance(o, GenerateOp))
    return next((o for o in inside if windowed(o)), None)


def declare(program: Program, op: ops.CollectOp) -> None:
    """What gathers the batch, before the loop."""
    generate = waiting(op) if program.place.at_home else None
    settings = {
        **{"name": title(op), "groups": op.groups, "max_rounds": op.max_rounds},
        **(lag_bound(generate) if generate is not None else {}),
    }
    made = program.call(op, "Collect", program.run, settings=settings)
    held = title(op)
    assert isinstance(held, StringAttr)
    made.results[0].name_hint = f"{held.data}_rounds"
    program.collects[op] = made.results[0]


def _one_batch(keep: ops.KeepOp) -> SSAValue:
    """The trajectories that it keeps. Raises Cannot if there are none, or several."""
    found = [v for v in keep.kept if isinstance(v.type, TrajectoriesType)]
    if len(found) != 1 or found[0] is not trajectories_of(keep.by):
        raise Cannot(keep, "keep: other than one batch of trajectories does not compile yet")
    return found[0]


def _fields(keep: ops.KeepOp, y: SSAValue) -> list[SSAValue]:
    """What is kept behind the rewards and the trajectories."""
    return [v for v in keep.kept[1:] if v is not y]


def _results(program: Program, op: ops.CollectOp, keep: ops.KeepOp, fields: list[SSAValue]) -> None:
    """The values of the collect: what its keep took, of the whole batch."""
    number = 0
    for result, kept in zip(op.results, keep.operands, strict=True):
        if isinstance(kept.type, CursorType):
            continue
        if kept is keep.by and number == 0:
            made = _read(program, op, "rewards")
        elif isinstance(kept.type, TrajectoriesType):
            made = _read(program, op, "trajectories")
        else:
            kind = "token_field" if isinstance(kept.type, TokenFieldType) else "response_field"
            made = _read(program, op, kind, index=plain(fields.index(kept)))
        number += 1
        program.values[result] = made.results[0]
        made.results[0].name_hint = result.name_hint


def _read(program: Program, op: ops.CollectOp, callee: str, **settings: Attribute) -> CallOp:
    return program.call(op, callee, receiver=program.collects[op], settings=settings)
