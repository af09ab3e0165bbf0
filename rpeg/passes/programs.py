"""How operations of a scheduled step become instructions of a program: one function each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from xdsl.builder import Builder
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import InsertPoint

from rpeg.ir.base import RpegOp
from rpeg.ir.declared import declaration
from rpeg.ir.naming import trajectories_of
from rpeg.ir.ops import effects, fuse, losses, regions, rewards, sampling, updates
from rpeg.ir.ops.movement import PublishOp, clause_of, model_of
from rpeg.ir.reported import reported_rewards
from rpeg.ir.rrt import CallOp, ConstantOp, EveryOp, LoopOp
from rpeg.ir.settings import python_value
from rpeg.ir.stages import stages
from rpeg.ir.types import CursorType, DemosType, TrajectoriesType


@dataclass
class Cannot(Exception):
    """An operation, or a use of it, that this version does not compile."""

    op: Operation
    why: str


class NotHere(Exception):
    """An operation needs what was refused already: that one message is enough."""


@dataclass
class Program:
    """A program under construction: where instructions go, and what each value became."""

    run: SSAValue
    builder: Builder
    loop: LoopOp | None = None
    objects: dict[str, SSAValue] = field(default_factory=dict[str, SSAValue])
    """Trainers, frozen models, data and verifiers, by declared name."""
    registers: dict[str, SSAValue] = field(default_factory=dict[str, SSAValue])
    engines: dict[str, SSAValue] = field(default_factory=dict[str, SSAValue])
    buffers: dict[Operation, SSAValue] = field(default_factory=dict[Operation, SSAValue])
    values: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])

    def call(
        self,
        at: Operation,
        callee: str,
        *things: SSAValue,
        receiver: SSAValue | None = None,
        keywords: Mapping[str, SSAValue] | None = None,
        settings: Mapping[str, Attribute | None] | None = None,
    ) -> CallOp:
        """Adds an instruction; settings that are None are left out."""
        given = {k: v for k, v in (settings or {}).items() if v is not None}
        op = self.builder.insert(CallOp.of(callee, things, given, keywords, receiver))
        op.location = at.location
        return op

    def results(self, op: Operation, call: CallOp) -> None:
        """The results of an operation are those of an instruction, under the same names."""
        for old, new in zip(op.results, call.results, strict=False):
            self.values[old] = new
            new.name_hint = old.name_hint

    def value(self, value: SSAValue) -> SSAValue:
        """What a value of the step became. Raises NotHere if its maker was refused."""
        if isinstance(value.owner, sampling.GetOp):
            return self.declared(value.owner.symbol_name)
        if value not in self.values:
            raise NotHere
        return self.values[value]

    def declared(self, name: str) -> SSAValue:
        """What a declaration became. Raises NotHere if it was refused."""
        if name not in self.objects:
            raise NotHere
        return self.objects[name]

    def model(self, op: Operation) -> SSAValue:
        """The trainer or frozen model that an operation works with."""
        return self.declared(_model(op))

    def engine(self, op: Operation) -> SSAValue:
        """The engine of the model that an operation samples from."""
        self.model(op)
        name = _model(op)
        if name not in self.engines:
            raise Cannot(
                op,
                f"`{name}` samples, but no update of the step trains it: this does not compile yet",
            )
        return self.engines[name]

    def inside(self, builder: Builder) -> "Program":
        """The same program, with instructions going elsewhere."""
        return replace(self, builder=builder)


def _model(op: Operation) -> str:
    name = model_of(op)
    assert name is not None, op.name
    return name


Handler = Callable[[Program, RpegOp], None]
HANDLERS: dict[type[RpegOp], Handler] = {}
"""What this version compiles; an operation that is not here is refused by name."""


def _compiles(*kinds: type[RpegOp]) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(kinds, handler))
        return handler

    return register


def lower(program: Program, op: RpegOp) -> None:
    """Adds the instructions of one operation."""
    handler = HANDLERS.get(type(op))
    if handler is None:
        raise _not_yet(op)
    handler(program, op)


def _not_yet(op: RpegOp) -> Cannot:
    return Cannot(op, f"`{op.SURFACE or op.name}` checks and prints, but does not compile yet")


def _need(op: RpegOp, name: str, value: object, why: str) -> None:
    """Refuses a setting that this version does not compile."""
    if op.value(name) not in (value, None):
        shown = op.value(name)
        raise Cannot(op, f"{op.SURFACE}: {name}={shown} {why}")


def _width(op: Operation) -> int:
    """Data-parallel width of the pipeline's layout."""
    layouts = (clause_of(o, "par") for o in stages(op).values())
    found = next((c for c in layouts if c is not None), None)
    dp = python_value(found.settings.get("dp")) if found is not None else 1
    return dp if isinstance(dp, int) else 1


def _divides(op: Operation, size: int, what: str) -> None:
    """Every process takes an equal share."""
    dp = _width(op)
    if size % dp:
        raise Cannot(op, f"{what} does not divide over {dp} processes (dp={dp})")


@_compiles(sampling.BatchOp)
def _batch(program: Program, op: RpegOp) -> None:
    assert isinstance(op, sampling.BatchOp)
    _divides(op, op.int_of("size"), f"a batch of {op.int_of('size')} rows")
    assert isinstance(op.source.type, CursorType)
    data = program.declared(op.source.type.symbol)
    program.results(op, program.call(op, "batch", receiver=data, settings=op.properties))


@_compiles(sampling.GenerateOp)
def _generate(program: Program, op: RpegOp) -> None:
    assert isinstance(op, sampling.GenerateOp)
    if isinstance(op.weights.owner, sampling.StaleOp):
        raise NotHere
    if op.tools or op.int_of("max_turns") != 1:
        raise Cannot(op, "tools and several turns do not compile yet")
    _need(op, "routing", "free", "does not compile yet")
    _need(op, "dtype", _dtype_of(op), "differs from the model's: it does not compile yet")
    settings = {k: v for k, v in op.properties.items() if k not in ("bound", "overflow")}
    prompts = program.value(op.prompts)
    made = program.call(op, "generate", prompts, receiver=program.engine(op), settings=settings)
    program.results(op, made)
    buffer = program.buffers[op]
    program.call(op, "put", *made.results, receiver=buffer)
    assert program.loop is not None
    taken = program.call(op, "take", receiver=buffer, keywords={"step": program.loop.step})
    program.results(op, taken)


def _dtype_of(op: RpegOp) -> object:
    model = declaration(op, _model(op))
    return python_value(model.properties.get("dtype")) if model is not None else None


@_compiles(sampling.StaleOp)
def _stale(program: Program, op: RpegOp) -> None:
    raise Cannot(op, "older weights (bounded asynchrony) do not compile yet: read this step's")


@_compiles(sampling.ScoreOp)
def _score(program: Program, op: RpegOp) -> None:
    assert isinstance(op, sampling.ScoreOp)
    scorer, y = program.value(op.scorer), program.value(op.trajectories)
    program.results(op, program.call(op, "score", y, receiver=scorer))


@_compiles(sampling.LogprobOp)
def _logprob(program: Program, op: RpegOp) -> None:
    y = program.value(op.operands[1])
    program.results(op, program.call(op, "logprob", y, receiver=program.model(op)))


@_compiles(fuse.FuseOp)
def _fuse(program: Program, op: RpegOp) -> None:
    assert isinstance(op, fuse.FuseOp)
    for other in op.passes:
        if not isinstance(other, sampling.LogprobOp):
            raise _not_yet(other)
    y = program.value(op.passes[0].operands[1])
    models = [program.model(each) for each in op.passes]
    program.results(op, program.call(op, "logprobs", y, *models))


@_compiles(sampling.OnPolicyLogprobOp)
def _on_policy(program: Program, op: RpegOp) -> None:
    constant = program.builder.insert(ConstantOp.of("ON_POLICY"))
    constant.location = op.location
    program.values[op.results[0]] = constant.results[0]


@_compiles(rewards.WeightedSumOp, losses.KlLossOp, losses.EntropyBonusOp, losses.CrossEntropyOp)
def _pure(program: Program, op: RpegOp) -> None:
    things = [program.value(v) for v in op.operands]
    program.results(op, program.call(op, op.SURFACE, *things, settings=op.properties))


@_compiles(rewards.GroupAdvantageOp, rewards.ImportanceOp)
def _of_trajectories(program: Program, op: RpegOp) -> None:
    """Functions of fields that also need the trajectories: their groups and masks."""
    y = trajectories_of(op.operands[0])
    assert y is not None
    things = [program.value(v) for v in (y, *op.operands)]
    program.results(op, program.call(op, op.SURFACE, *things, settings=op.properties))


@_compiles(losses.PpoClipOp, losses.CispoOp, losses.PolicyGradientOp)
def _policy_loss(program: Program, op: RpegOp) -> None:
    assert isinstance(op, losses.PolicyLossOp)
    weight = op.weights()
    things = [program.value(v) for v in op.operands if v is not weight]
    keywords = {"weight": program.value(weight)} if weight is not None else {}
    made = program.call(op, op.SURFACE, *things, keywords=keywords, settings=op.properties)
    program.results(op, made)


@_compiles(updates.UpdateOp)
def _update(program: Program, op: RpegOp) -> None:
    assert isinstance(op, updates.UpdateOp)
    _need(op, "routing", "free", "does not compile yet")
    for loss in op.losses:
        size, parts = _samples(loss), op.int_of("minibatches")
        _divides(op, size // parts, f"a minibatch of {size} / {parts} = {size // parts} samples")
    terms = [program.value(v) for v in op.losses]
    program.call(op, "update", *terms, receiver=program.model(op), settings=op.properties)


def _samples(loss: SSAValue) -> int:
    """Samples that a loss trains on."""
    batch = loss.owner.operands[0].type if isinstance(loss.owner, Operation) else None
    if isinstance(batch, TrajectoriesType):
        return batch.prompts.data * batch.n
    return batch.size.data if isinstance(batch, DemosType) else 0


@_compiles(PublishOp)
def _publish(program: Program, op: RpegOp) -> None:
    publish(program, op, _model(op))


def publish(program: Program, at: Operation, model: str) -> None:
    """A publish is a pair for the engine: swap the weights, reset the prefix cache."""
    trainer = program.declared(model)
    register, engine = program.registers[model], program.engines[model]
    program.call(at, "publish", trainer, receiver=register)
    program.call(at, "swap_weights", register, receiver=engine)
    program.call(at, "reset_prefix_cache", receiver=engine)


@_compiles(regions.EveryOp)
def _every(program: Program, op: RpegOp) -> None:
    assert isinstance(op, regions.EveryOp) and program.loop is not None
    if op.carried:
        raise Cannot(op, "updates and batches inside every do not compile yet")
    steps, first = op.int_of("steps"), op.int_of("from")
    every = program.builder.insert(EveryOp.of(program.run, program.loop.step, steps, first))
    every.location = op.location
    inner = program.inside(Builder(InsertPoint.at_end(every.body.block)))
    for each in op.body.block.ops:
        if isinstance(each, RpegOp) and not isinstance(each, regions.YieldOp):
            lower(inner, each)


@_compiles(effects.EvalOp)
def _eval(program: Program, op: RpegOp) -> None:
    assert isinstance(op, effects.EvalOp)
    if op.tools or op.int_of("max_turns") != 1:
        raise Cannot(op, "tools and several turns do not compile yet")
    things = [program.engine(op), program.value(op.prompts), program.value(op.scorer)]
    made = program.call(op, "evaluate", *things, settings={"name": _title(op), **op.properties})
    program.results(op, made)


@_compiles(effects.EvalLossOp)
def _eval_loss(program: Program, op: RpegOp) -> None:
    things = [program.model(op), program.value(op.operands[1])]
    made = program.call(
        op, "evaluate_loss", *things, settings={"name": _title(op), **op.properties}
    )
    program.results(op, made)


def _title(op: RpegOp) -> Attribute:
    """The name that a metric is reported under."""
    return op.attributes.get("stage") or StringAttr(op.results[0].name_hint or op.SURFACE)


@_compiles(effects.CheckpointOp)
def _checkpoint(program: Program, op: RpegOp) -> None:
    program.call(op, "checkpoint", receiver=program.run, settings=op.properties)


@_compiles(effects.ExportOp)
def _export(program: Program, op: RpegOp) -> None:
    program.call(op, "export", program.model(op), receiver=program.run, settings=op.properties)


@_compiles(effects.StopOp)
def _stop(program: Program, op: RpegOp) -> None:
    metric = program.value(op.operands[0])
    program.call(op, "stop", metric, receiver=program.run, settings=op.properties)


def report(program: Program, step: Operation) -> None:
    """Reports the rewards of each batch of trajectories, and writes the rollouts."""
    for op, found in reported_rewards(step):
        fields = {v.name_hint or "reward": program.value(v) for v in found}
        y = program.value(op.trajectories)
        program.call(op, "report", y, receiver=program.run, keywords=fields)
