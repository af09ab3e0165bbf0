"""Reading data, weights and trajectories: batch, generate, score, logprob, values."""

from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Attribute, SSAValue

from rpeg.ir.base import RpegOp
from rpeg.ir.declared import declaration
from rpeg.ir.layout import width_of
from rpeg.ir.ops import fuse
from rpeg.ir.ops import sampling as ops
from rpeg.ir.ops.movement import clause_of
from rpeg.ir.ops.regions import EveryOp
from rpeg.ir.rrt.calls import ConstantOp
from rpeg.ir.rules.shares import shared
from rpeg.ir.rules.staleness import WORDS
from rpeg.ir.types.attributes import plain
from rpeg.ir.types.values import CursorType, TokenFieldType, TrajectoriesType, WeightsType
from rpeg.ir.vocabulary.settings import python_value
from rpeg.passes.programs.handlers import compiles, divides, lower, need
from rpeg.passes.programs.program import Cannot, Program, model_name


@compiles(ops.BatchOp)
def _batch(program: Program, op: RpegOp) -> None:
    assert isinstance(op, ops.BatchOp)
    for found in shared(op):
        divides(op, found)
    assert isinstance(op.source.type, CursorType)
    data = program.declared(op.source.type.symbol)
    program.results(op, program.call(op, "batch", receiver=data, settings=op.properties))


@compiles(ops.GenerateOp)
def _generate(program: Program, op: RpegOp) -> None:
    assert isinstance(op, ops.GenerateOp)
    if windowed(op) and isinstance(op.parent_op(), EveryOp) and program.place.at_home:
        raise Cannot(op, "older weights inside of every do not compile yet: read @i")
    if op.tools or op.int_of("max_turns") != 1:
        raise Cannot(
            op, "tools and several turns do not compile yet: leave out tools and max_turns"
        )
    need(op, "routing", "free", "does not compile yet: leave it out")
    need(op, "dtype", _dtype_of(op), "differs from the model's: it does not compile yet")
    settings = {k: v for k, v in op.properties.items() if k not in WORDS}
    if op in program.flights:
        _renewed(program, op)  # for what it refuses
        flight = program.flights[op]
        program.results(op, program.call(op, "generate", receiver=flight, settings=settings))
        return
    prompts = program.value(op.prompts)
    made = program.call(
        op,
        "generate",
        prompts,
        receiver=program.engine(op),
        keywords=_renewed(program, op),
        settings=settings,
    )
    program.results(op, made)
    if op not in program.buffers:
        return  # its channel, or the collect that keeps its groups, holds them to the bound
    program.call(op, "put", *made.results, receiver=program.buffers[op])
    if not program.ahead:
        take(program, op)


def _renewed(program: Program, op: ops.GenerateOp) -> dict[str, SSAValue]:
    """Where samples in flight find newer weights: on a pool of their own only, since elsewhere none
    can come before they end.
    """
    goes_on = python_value(op.properties.get("overflow")) == "resume"
    if not goes_on or program.place.at_home:
        return {}
    layout = clause_of(op, "par")
    if layout is not None and any(width_of(layout, axis) > 1 for axis in ("tp", "pp")):
        raise Cannot(
            op,
            "overflow=resume where several processes sample the same: they would not agree on when "
            "new weights come; lay the pool out with dp only, or write overflow=wait",
        )
    return {"renew": program.registers[model_name(op)]}


def take(program: Program, op: ops.GenerateOp) -> None:
    """The batch that the step trains on is what its buffer gives."""
    assert program.loop is not None
    step = {"step": program.loop.step}
    program.results(op, program.call(op, "take", receiver=program.buffers[op], keywords=step))


def windowed(op: ops.GenerateOp) -> bool:
    """Whether it reads a window of versions, or an older one."""
    return isinstance(op.weights.owner, ops.StaleOp)


def lag_bound(op: ops.GenerateOp) -> dict[str, Attribute | None]:
    """What a buffer of its samples is told of their age."""
    held = op.trajectories.type
    assert isinstance(held, TrajectoriesType)
    # Nothing is resumed on its way into a buffer, so that there is nothing to regenerate.
    old_spans = op.old_spans if op.old_spans != plain("regenerate") else None
    return {
        "max_lag": plain(held.lag[1]),
        "bound": op.bound or plain("strict"),
        "old_spans": old_spans,
    }


def _dtype_of(op: RpegOp) -> object:
    model = declaration(op, model_name(op))
    return python_value(model.properties.get("dtype")) if model is not None else None


@compiles(ops.StaleOp)
def _stale(program: Program, op: RpegOp) -> None:
    """Which version it is, the schedule decided: an engine has one."""


@compiles(ops.ScoreOp)
def _score(program: Program, op: RpegOp) -> None:
    assert isinstance(op, ops.ScoreOp)
    of_model = isinstance(op.scorer.type, WeightsType)
    scorer = program.model(op) if of_model else program.value(op.scorer)
    a_token = of_model and isinstance(op.reward.type, TokenFieldType)
    y = program.value(op.trajectories)
    made = program.call(op, "token_scores" if a_token else "score", y, receiver=scorer)
    program.results(op, made)


@compiles(ops.LogprobOp, ops.ValuesOp)
def _forward(program: Program, op: RpegOp) -> None:
    y = program.value(op.operands[1])
    program.results(op, program.call(op, op.SURFACE, y, receiver=program.model(op)))


@compiles(fuse.FuseOp)
def _fuse(program: Program, op: RpegOp) -> None:
    assert isinstance(op, fuse.FuseOp)
    inside = [result for each in op.passes for result in each.results]
    for result, outer in zip(inside, op.results, strict=True):
        result.name_hint = outer.name_hint
    shared = [each for each in op.passes if isinstance(each, ops.LogprobOp | ops.ValuesOp)]
    if len(shared) > 1:
        _forward_together(program, op, shared)
    # A reward model reads the last token too: its inputs are its own.
    for each in op.passes:
        if len(shared) < 2 or each not in shared:
            lower(program, each)
    program.values.update(
        (outer, program.value(result)) for result, outer in zip(inside, op.results, strict=True)
    )


def _forward_together(program: Program, op: RpegOp, passes: Sequence[RpegOp]) -> None:
    y, models = program.value(passes[0].operands[1]), [program.model(each) for each in passes]
    made = program.call(op, "forward", y, *models, settings={"asked": _asked(passes)})
    for each, result in zip(passes, made.results, strict=True):
        program.values[each.results[0]] = result
        result.name_hint = each.results[0].name_hint


def _asked(passes: Sequence[RpegOp]) -> ArrayAttr[StringAttr] | None:
    """What each pass wants of its model; None where every model has one head only."""
    read = [op.operands[0].type for op in passes]
    if not any(isinstance(t, WeightsType) and t.role.data == "actor_critic" for t in read):
        return None
    return ArrayAttr([StringAttr(op.SURFACE) for op in passes])


@compiles(ops.OnPolicyLogprobOp)
def _on_policy(program: Program, op: RpegOp) -> None:
    constant = program.builder.insert(ConstantOp.of("ON_POLICY"))
    constant.location = op.location
    program.values[op.results[0]] = constant.results[0]
