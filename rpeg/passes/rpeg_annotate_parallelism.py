"""`rpeg-annotate-parallelism`: from L0 to L1, where every stage runs and in which layout."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Operation
from xdsl.rewriter import Rewriter

from rpeg.ir.base import RpegOp
from rpeg.ir.layout import contradictions, later, size_of
from rpeg.ir.ops.declare import ModelOp, PipelineOp
from rpeg.ir.ops.movement import POOL, RanksOp, model_of
from rpeg.ir.ops.plan import PlaceOp, PlanOp, PoolOp, plan_cluster
from rpeg.ir.ops.sampling import GenerateOp, ScoreOp
from rpeg.ir.rules.plan import open_stages
from rpeg.ir.rules.settings import record_violations
from rpeg.ir.stages import stage_name, stages
from rpeg.ir.text.locations import place_by
from rpeg.ir.text.naming import trajectories_of
from rpeg.ir.types.attributes import RecordAttr, plain
from rpeg.ir.vocabulary.records import CLAUSES
from rpeg.passes.base import Levels, PassRefused, Problem, RpegPass, pipelines, step
from rpeg.passes.layout_names import LayoutNameError, own_layouts
from rpeg.passes.layouts import moves_rows
from rpeg.passes.pools import spread
from rpeg.passes.publishing import publish
from rpeg.passes.statistics import Meanings

ALL = "all"


@dataclass(frozen=True)
class RpegAnnotateParallelismPass(RpegPass):
    """
    Takes the layout from a plan of the file (`plan=NAME`), or gives every stage the same one from
    the options: a process group `all` of dp x tp x pp x cp ranks. Every stage gets its `pool` and
    clauses, and the publishing of new weights to engines becomes explicit, as a state of its own.

    In a plan of several pools every other operation gets a pool as well: that of what reads its
    result, and the home, which trains what is sampled from, for everything that measures or writes.
    What another pool reads goes there by a transfer.

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
        "publishes made explicit": "trained models whose weights engines read, once a pool of them",
        "values that cross pools": "transfers, of a plan with several pools",
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
    others: str | None = None
    """Models with a layout of their own, by its name: `critic=dp2+ref=pp2`."""

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        for pipeline in pipelines(op):
            self._check(pipeline)
            source = FromPlan(_whole(pipeline, self.plan)) if self.plan else FromOptions(self)
            groups = source.groups(pipeline)
            for ranks in groups:
                pipeline.body.block.insert_op_before(ranks, step(pipeline))
            placed = list(stages(pipeline).values())
            if problems := list(source.problems(placed)):
                raise PassRefused.of(problems)
            for stage in placed:
                source.annotate(stage)
                self.count("stages annotated")
            _drop_plans(pipeline)
            if len(groups) > 1:
                self.count("values that cross pools", spread(step(pipeline)))
            self.count("publishes made explicit", publish(step(pipeline)))

    def _check(self, pipeline: PipelineOp) -> None:
        try:
            messages = self.problems()
        except LayoutNameError as error:
            raise PassRefused(pipeline, str(error)) from error
        models = [op.title for op in pipeline.ops_of(ModelOp)]
        messages += [
            f"there is no model `{name}` to give a layout; the file has: {', '.join(models)}"
            for name in self.own_layouts
            if name not in models
        ]
        if messages:
            raise PassRefused.of([Problem(pipeline, message) for message in messages])

    def problems(self) -> list[str]:
        """What is wrong with the layouts of the options, whatever pipeline they are for."""
        found, size = layout_problems(self.layout), size_of(self.layout)
        for model, layout in self.own_layouts.items():
            found += [f"`{model}`: {problem}" for problem in layout_problems(layout)]
            if size_of(layout) != size:
                text = f"its layout takes {size_of(layout)} processes, and the others take {size}"
                found.append(f"`{model}`: {text}")
        return found

    @property
    def own_layouts(self) -> dict[str, RecordAttr]:
        """The layouts of `others`, by model."""
        return {m: par(**{"dp": 1, **held}) for m, held in own_layouts(self.others).items()}

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
    plans = pipeline.ops_of(PlanOp)
    found = next((p for p in plans if p.title == name), None)
    if found is None:
        known = ", ".join(p.title for p in plans) or "none"
        raise PassRefused(pipeline, f"there is no plan `{name}`; the file has: {known}")
    return found


def _whole(pipeline: PipelineOp, name: str) -> PlanOp:
    """The plan with this name, which places every stage."""
    plan = _plan(pipeline, name)
    text = open_stages(plan)
    if text is not None:
        raise PassRefused.of([Problem(plan, text, rule="open-stages")])
    return plan


def _drop_plans(pipeline: PipelineOp) -> None:
    for op in list(pipeline.body.block.ops):
        if isinstance(op, PlanOp):
            Rewriter.erase_op(op)


@dataclass
class FromOptions:
    """One group for everything."""

    options: RpegAnnotateParallelismPass

    def groups(self, pipeline: PipelineOp) -> list[RanksOp]:
        """The group `all`."""
        ranks = RanksOp.of(ALL, 0, size_of(self.options.layout) - 1)
        ranks.location = pipeline.location
        return [ranks]

    def problems(self, placed: Sequence[RpegOp]) -> Iterator[Problem]:
        """None: there is room for every stage."""
        yield from ()

    def annotate(self, stage: RpegOp) -> None:
        """The group, and the layout of the options."""
        stage.attributes[POOL] = StringAttr(ALL)
        own = self.options.own_layouts.get(model_of(stage) or "") if moves_rows(stage) else None
        stage.attributes["par"] = own or self.options.layout


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
        """One group per pool that has a layout: on GPUs in their order, else in the plan's."""
        placed = {p.pool_name for p in self.plan.places if p.clause("par") is not None}
        pools = sorted((p for p in self.plan.pools if p.title in placed), key=_first_gpu)
        _disjoint(pools)
        made: list[RanksOp] = []
        first = 0
        for pool in pools:
            width = self.width[pool.title] = self._width(pool.title)
            ranks = RanksOp.of(pool.title, first, first + width - 1)
            ranks.location = self.plan.location
            made.append(ranks)
            first += width
        return made

    def _width(self, pool: str) -> int:
        """Processes of a pool: what its first line says that can compile."""
        held = (p.clause("par") for p in self.plan.places if p.pool_name == pool)
        layouts = sorted((c for c in held if c is not None), key=lambda c: later(c) is not None)
        return size_of(layouts[0])

    def problems(self, placed: Sequence[RpegOp]) -> Iterator[Problem]:
        """Lines that no program can follow."""
        for stage in placed:
            name, line = stage_name(stage), self._line(stage)
            if len({_way(c) for c in line.clauses if c.kind == "publish"}) > 1:
                text = f"`{name}` publishes in two ways: write the same for all pools"
                yield Problem(line, text)
            if self._pool(line, stage) is None:
                text = f"`{name}` needs par(dp=...) on its line of plan `{self.plan.title}`"
                yield Problem(line, text)

    def annotate(self, stage: RpegOp) -> None:
        """The pool and clauses of the stage's line."""
        line = self._line(stage)
        pool = self._pool(line, stage)
        assert pool is not None, "the caller has looked for problems"
        stage.attributes[POOL] = StringAttr(pool)
        stage.attributes.update({c.kind: c for c in line.clauses})
        place_by(stage, line)

    def _line(self, stage: RpegOp) -> PlaceOp:
        return next(p for p in self.plan.places if p.title == stage_name(stage))

    def _pool(self, line: PlaceOp, stage: RpegOp) -> str | None:
        """Whose processes run it. Verifiers on a pool of cores belong to those that sample what
        they read; None where nothing tells how many there are.
        """
        if line.pool_name in self.width:
            return line.pool_name
        if isinstance(stage, ScoreOp) and self.width:
            sampled = self._sampled(stage)
            return sampled if sampled in self.width else next(iter(self.width))
        return None

    def _sampled(self, score: ScoreOp) -> str | None:
        """The pool of the generate that makes what a stage scores."""
        y = trajectories_of(score.trajectories)
        maker = y.owner if y is not None else None
        inside = maker.walk() if isinstance(maker, Operation) else ()
        names = [stage_name(op) for op in inside if isinstance(op, GenerateOp)]
        return next((p.pool_name for p in self.plan.places if p.title in names), None)


def _way(publish: RecordAttr) -> RecordAttr:
    """How weights are published, wherever to."""
    return RecordAttr.make("publish", {k: v for k, v in publish.settings.items() if k != "to"})


def _first_gpu(pool: PoolOp) -> int:
    cluster = plan_cluster(pool)
    gpus = pool.gpus(cluster) if cluster is not None else None
    return gpus.start if gpus is not None else 0


def _disjoint(pools: Sequence[PoolOp]) -> None:
    """Refuses pools that share GPUs: each has processes of its own, one per GPU."""
    for one, other in combinations(pools, 2):
        cluster = plan_cluster(one)
        held = [set(p.gpus(cluster) or ()) if cluster is not None else set() for p in (one, other)]
        if held[0] & held[1]:
            text = (
                f"the pools `{one.title}` and `{other.title}` share GPUs: stages that take turns "
                "on them belong to one pool, for now: write one, or disjoint ones"
            )
            raise PassRefused(other, text)
