"""`rpeg-annotate-parallelism`: from L0 to L1, where every stage runs and in which layout."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.rewriter import InsertPoint

from rpeg.ir.base import RpegOp
from rpeg.ir.layout import contradictions, later, size_of
from rpeg.ir.ops.declare import PipelineOp
from rpeg.ir.ops.effects import EvalOp
from rpeg.ir.ops.movement import POOL, PublishOp, RanksOp, model_of
from rpeg.ir.ops.plan import PlaceOp, PlanOp
from rpeg.ir.ops.sampling import GenerateOp, ScoreOp
from rpeg.ir.ops.step import StepOp
from rpeg.ir.ops.updates import UpdateOp
from rpeg.ir.rules.settings import record_violations
from rpeg.ir.stages import stage_name, stages
from rpeg.ir.text.locations import place_by
from rpeg.ir.types.attributes import RecordAttr, plain
from rpeg.ir.types.values import WeightsType
from rpeg.ir.vocabulary.records import CLAUSES
from rpeg.passes.base import Levels, PassRefused, Problem, RpegPass, erase, pipelines, step
from rpeg.passes.statistics import Meanings

ALL = "all"


@dataclass(frozen=True)
class RpegAnnotateParallelismPass(RpegPass):
    """
    Takes the layout from a plan of the file (`plan=NAME`), or gives every stage the same one from
    the options: a process group `all` of dp x tp x pp x cp ranks. Every stage gets its `pool` and
    clauses, and the publishing of new weights to engines becomes explicit, as a state of its own.

    Before:
        rpeg.step i < 300 (%actor : !rpeg.weights<@actor, policy>, ...) {
          %y, %lp = rpeg.generate %actor, %q {n = 8 : i64, ...}
          %actor_1, %actor_opt_1 = rpeg.update %actor, %actor_opt, %pg {...}
          rpeg.yield %actor_1, ...
    After:
        rpeg.ranks @all 0 to 1
        rpeg.step i < 300 (%actor : ..., %actor_published : !rpeg.weights<@actor, policy>) {
          %y, %lp = rpeg.generate %actor_published, %q {n = 8 : i64, ...}
            attributes {pool = "all", par = #rpeg.record<par, {dp = 2 : i64, ...}>}
          %actor_1, %actor_opt_1 = rpeg.update %actor, %actor_opt, %pg {...} attributes {...}
          %actor_published_1 = rpeg.publish %actor_1
          rpeg.yield %actor_1, ..., %actor_published_1
    """

    name = "rpeg-annotate-parallelism"
    LEVELS: ClassVar[Levels] = {"L0": "L1"}
    STATISTICS: ClassVar[Meanings] = {
        "stages annotated": "stages that got a pool and clauses",
        "publishes made explicit": "trained models whose weights engines read",
    }
    plan: str | None = None
    """Which plan of the file to take; without one, the options below."""
    dp: int = 1
    """Data-parallel width."""
    tp: int = 1
    """Tensor-parallel width."""
    pp: int = 1
    """Pipeline stages."""
    cp: int = 1
    """Context-parallel width."""
    vpp: int = 1
    """Model chunks on each pipeline stage."""
    sp: bool = False
    """Shard activations along the sequence, over the tensor-parallel ranks."""
    zero: int = 0
    """1: replicas share one optimizer."""
    recompute: str = "none"
    """What the backward pass computes again: none, selective or full."""

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        for pipeline in pipelines(op):
            self._check(pipeline)
            source = FromPlan(_plan(pipeline, self.plan)) if self.plan else FromOptions(self)
            for ranks in source.groups(pipeline):
                pipeline.body.block.insert_op_before(ranks, step(pipeline))
            for stage in stages(pipeline).values():
                source.annotate(stage)
                self.count("stages annotated")
            _drop_plans(pipeline)
            self.count("publishes made explicit", publish(step(pipeline)))

    def _check(self, pipeline: PipelineOp) -> None:
        messages = layout_problems(self.layout)
        if messages:
            raise PassRefused.of([Problem(pipeline, message) for message in messages])

    @property
    def layout(self) -> RecordAttr:
        """The layout of the options, as a `par` clause."""
        held = (
            *(("dp", self.dp), ("tp", self.tp), ("pp", self.pp), ("cp", self.cp)),
            *(("vpp", self.vpp), ("sp", self.sp), ("zero", self.zero)),
            ("recompute", self.recompute),
        )
        return par(**dict[str, int | bool | str](held))


def _plan(pipeline: PipelineOp, name: str) -> PlanOp:
    plans = [op for op in pipeline.body.block.ops if isinstance(op, PlanOp)]
    found = next((p for p in plans if p.title == name), None)
    if found is None:
        known = ", ".join(p.title for p in plans) or "none"
        raise PassRefused(pipeline, f"there is no plan `{name}`; the file has: {known}")
    return found


def _drop_plans(pipeline: PipelineOp) -> None:
    for op in list(pipeline.body.block.ops):
        if isinstance(op, PlanOp):
            erase(op)


@dataclass
class FromOptions:
    """One group for everything."""

    options: RpegAnnotateParallelismPass

    def groups(self, pipeline: PipelineOp) -> list[RanksOp]:
        """The group `all`."""
        ranks = RanksOp.of(ALL, 0, size_of(self.options.layout) - 1)
        ranks.location = pipeline.location
        return [ranks]

    def annotate(self, stage: RpegOp) -> None:
        """The group, and the layout of the options."""
        stage.attributes[POOL] = StringAttr(ALL)
        stage.attributes["par"] = self.options.layout


def par(**given: int | bool | str) -> RecordAttr:
    """A layout: the defaults of the clause with these settings."""
    row = CLAUSES["par"]
    held = {n: plain(given[n]) if n in given else s.default for n, s in row.settings.items()}
    return RecordAttr.make("par", {n: v for n, v in held.items() if v is not None})


def layout_problems(layout: RecordAttr) -> list[str]:
    """What is wrong with a layout, whatever model and pool it is for."""
    misfits = [violation.message for violation in record_violations(layout, CLAUSES["par"])]
    return misfits or list(contradictions(layout))


@dataclass
class FromPlan:
    """The groups and clauses of one of the file's plans."""

    plan: PlanOp
    width: dict[str, int] = field(default_factory=dict[str, int])

    def groups(self, pipeline: PipelineOp) -> list[RanksOp]:
        """One group a pool that has a layout, in the order of the plan."""
        for place in self.plan.places:
            layout = place.clause("par")
            if layout is not None:
                self.width.setdefault(place.pool_name, self._width(place.pool_name))
        made: list[RanksOp] = []
        first = 0
        for name, width in self.width.items():
            ranks = RanksOp.of(name, first, first + width - 1)
            ranks.location = self.plan.location
            made.append(ranks)
            first += width
        return made

    def _width(self, pool: str) -> int:
        """Processes of a pool: what its first line says that can compile."""
        held = (p.clause("par") for p in self.plan.places if p.pool_name == pool)
        layouts = sorted((c for c in held if c is not None), key=lambda c: later(c) is not None)
        return size_of(layouts[0])

    def annotate(self, stage: RpegOp) -> None:
        """The pool and clauses of the stage's line."""
        line = next((p for p in self.plan.places if p.title == stage_name(stage)), None)
        if line is None:
            text = f"the plan `{self.plan.title}` has no line for `{stage_name(stage)}`"
            raise PassRefused(stage, text)
        pool = self._pool(line, stage)
        stage.attributes[POOL] = StringAttr(pool)
        stage.attributes.update({c.kind: c for c in line.clauses})
        place_by(stage, line)

    def _pool(self, line: PlaceOp, stage: RpegOp) -> str:
        """Verifiers on a pool of cores belong to the processes that read their rewards."""
        if line.pool_name in self.width:
            return line.pool_name
        if isinstance(stage, ScoreOp) and self.width:
            return next(iter(self.width))
        text = f"`{stage_name(stage)}` needs par(dp=...) on its line of plan `{self.plan.title}`"
        raise PassRefused(line, text)


# ---- publishing


def publish(op: StepOp) -> int:
    """Makes the publishing of each trained model that an engine reads explicit: so many."""
    number = 0
    for trained in _trained(op):
        engines = (r for r in op.walk() if isinstance(r, GenerateOp | EvalOp))
        readers = [r for r in engines if model_of(r) == trained.update.makes()]
        if readers:
            _publish_one(op, trained, readers)
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


def _publish_one(op: StepOp, trained: _Trained, readers: Sequence[RpegOp]) -> None:
    block, update = op.body.block, trained.update
    register = block.insert_arg(update.weights.type, len(block.args))
    register.name_hint = f"{update.makes()}_published"
    maker = trained.after.owner
    assert isinstance(maker, Operation), "an update makes what the step ends with"
    made = Builder(InsertPoint.after(maker)).insert(
        PublishOp.make([trained.after], location=update.location)
    )
    made.results[0].name_hint = register.name_hint
    made.attributes[POOL] = update.attributes[POOL]
    for reader in readers:
        reader.operands[0] = _published(reader.operands[0], register, made.results[0], trained)
    ending = op.ending
    ending.operands = [*ending.operands, made.results[0]]


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
