"""Measuring, writing and stopping, and when."""

from xdsl.builder import Builder
from xdsl.ir import Operation
from xdsl.rewriter import InsertPoint

from rpeg.ir.base import RpegOp
from rpeg.ir.ops import effects as ops
from rpeg.ir.ops import regions
from rpeg.ir.ops.effects import EvalOp
from rpeg.ir.ops.sampling import GenerateOp
from rpeg.ir.ops.updates import UpdateOp
from rpeg.ir.reported import is_trained, reported_rewards
from rpeg.ir.rrt.program import EveryOp
from rpeg.ir.types.values import CursorType, DataType
from rpeg.passes.programs.handlers import compiles, lower, title
from rpeg.passes.programs.program import Cannot, Program


@compiles(regions.EveryOp)
def _every(program: Program, op: RpegOp) -> None:
    assert isinstance(op, regions.EveryOp) and program.loop is not None
    if any(isinstance(state.type, CursorType) for state in op.carried):
        raise Cannot(op, "batches inside every do not compile yet: move them out of it")
    _sees_published(op)
    steps, first = op.int_of("steps"), op.int_of("from")
    every = program.builder.insert(EveryOp.of(program.run, program.loop.step, steps, first))
    every.location = op.location
    inner = program.inside(Builder(InsertPoint.at_end(every.body.block)))
    for each in op.body.block.ops:
        if isinstance(each, RpegOp) and not isinstance(each, regions.YieldOp):
            lower(inner, each)


def _sees_published(every: regions.EveryOp) -> None:
    """Refuses what samples from weights that the same region makes: it ends before the publish."""
    made = {r for op in every.body.block.ops if isinstance(op, UpdateOp) for r in op.results}
    for op in every.body.block.ops:
        if isinstance(op, EvalOp | GenerateOp) and op.weights in made:
            raise Cannot(
                op,
                f"{op.SURFACE} of weights that the same region makes does not compile yet: "
                "move it into an every below",
            )


@compiles(ops.EvalOp)
def _eval(program: Program, op: RpegOp) -> None:
    assert isinstance(op, ops.EvalOp)
    if op.tools or op.int_of("max_turns") != 1:
        raise Cannot(
            op, "tools and several turns do not compile yet: leave out tools and max_turns"
        )
    things = [program.engine(op), program.value(op.prompts), program.value(op.scorer)]
    made = program.call(op, "evaluate", *things, settings={"name": title(op), **op.properties})
    program.results(op, made)


@compiles(ops.EvalLossOp)
def _eval_loss(program: Program, op: RpegOp) -> None:
    assert isinstance(op, ops.EvalLossOp) and isinstance(op.examples.type, DataType)
    callee = "evaluate_pairs" if op.examples.type.what == "pairs" else "evaluate_loss"
    things = [program.model(op), program.value(op.examples)]
    reference = op.reference
    keywords = {} if reference is None else {"reference": program.value(reference)}
    settings = {"name": title(op), **op.properties}
    program.results(op, program.call(op, callee, *things, keywords=keywords, settings=settings))


@compiles(ops.CheckpointOp)
def _checkpoint(program: Program, op: RpegOp) -> None:
    program.call(op, "checkpoint", receiver=program.run, settings=op.properties)


@compiles(ops.ExportOp)
def _export(program: Program, op: RpegOp) -> None:
    program.call(op, "export", program.model(op), receiver=program.run, settings=op.properties)


@compiles(ops.StopOp)
def _stop(program: Program, op: RpegOp) -> None:
    metric = program.value(op.operands[0])
    program.call(op, "stop", metric, receiver=program.run, settings=op.properties)


def report(program: Program, step: Operation) -> None:
    """Reports each batch of trajectories with its rewards where it is trained; of a batch beside
    the trained one, such as a greedy baseline, the rewards only, where it is made.
    """
    batches = list(reported_rewards(step))
    trained = [y for y, _ in batches if is_trained(y, step)]
    for y, found in batches:
        assert isinstance(y.owner, Operation), "an operation of the step makes a batch"
        home = y in trained or not trained
        if not (program.place.at_home if home else program.place.runs(y.owner)):
            continue
        fields = {v.name_hint or "reward": program.value(v) for v in found}
        callee = "report" if home else "measure"
        program.call(y.owner, callee, program.value(y), receiver=program.run, keywords=fields)
