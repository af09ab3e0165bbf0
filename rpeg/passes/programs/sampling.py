"""Reading data, weights and trajectories: batch, generate, score, logprob, values."""

from rpeg.ir.base import RpegOp
from rpeg.ir.declared import declaration
from rpeg.ir.ops import fuse
from rpeg.ir.ops import sampling as ops
from rpeg.ir.rrt import ConstantOp
from rpeg.ir.settings import python_value
from rpeg.ir.staleness import WORDS
from rpeg.ir.types import CursorType
from rpeg.passes.programs.handlers import compiles, divides, need, not_yet
from rpeg.passes.programs.program import Cannot, NotHere, Program, model_name


@compiles(ops.BatchOp)
def _batch(program: Program, op: RpegOp) -> None:
    assert isinstance(op, ops.BatchOp)
    divides(op, op.int_of("size"), f"a batch of {op.int_of('size')} rows")
    assert isinstance(op.source.type, CursorType)
    data = program.declared(op.source.type.symbol)
    program.results(op, program.call(op, "batch", receiver=data, settings=op.properties))


@compiles(ops.GenerateOp)
def _generate(program: Program, op: RpegOp) -> None:
    assert isinstance(op, ops.GenerateOp)
    if isinstance(op.weights.owner, ops.StaleOp):
        raise NotHere
    if op.tools or op.int_of("max_turns") != 1:
        raise Cannot(op, "tools and several turns do not compile yet")
    need(op, "routing", "free", "does not compile yet")
    need(op, "dtype", _dtype_of(op), "differs from the model's: it does not compile yet")
    settings = {k: v for k, v in op.properties.items() if k not in WORDS}
    prompts = program.value(op.prompts)
    made = program.call(op, "generate", prompts, receiver=program.engine(op), settings=settings)
    program.results(op, made)
    buffer = program.buffers[op]
    program.call(op, "put", *made.results, receiver=buffer)
    assert program.loop is not None
    taken = program.call(op, "take", receiver=buffer, keywords={"step": program.loop.step})
    program.results(op, taken)


def _dtype_of(op: RpegOp) -> object:
    model = declaration(op, model_name(op))
    return python_value(model.properties.get("dtype")) if model is not None else None


@compiles(ops.StaleOp)
def _stale(program: Program, op: RpegOp) -> None:
    raise Cannot(op, "older weights (bounded asynchrony) do not compile yet: read this step's")


@compiles(ops.ScoreOp)
def _score(program: Program, op: RpegOp) -> None:
    assert isinstance(op, ops.ScoreOp)
    scorer, y = program.value(op.scorer), program.value(op.trajectories)
    program.results(op, program.call(op, "score", y, receiver=scorer))


@compiles(ops.LogprobOp, ops.ValuesOp)
def _forward(program: Program, op: RpegOp) -> None:
    y = program.value(op.operands[1])
    program.results(op, program.call(op, op.SURFACE, y, receiver=program.model(op)))


@compiles(fuse.FuseOp)
def _fuse(program: Program, op: RpegOp) -> None:
    assert isinstance(op, fuse.FuseOp)
    for other in op.passes:
        if not isinstance(other, ops.LogprobOp | ops.ValuesOp):
            raise not_yet(other)
    y = program.value(op.passes[0].operands[1])
    models = [program.model(each) for each in op.passes]
    program.results(op, program.call(op, "forward", y, *models))


@compiles(ops.OnPolicyLogprobOp)
def _on_policy(program: Program, op: RpegOp) -> None:
    constant = program.builder.insert(ConstantOp.of("ON_POLICY"))
    constant.location = op.location
    program.values[op.results[0]] = constant.results[0]
