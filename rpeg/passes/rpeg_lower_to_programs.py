"""`rpeg-lower-to-programs`: from L2 to L3, one program for each process group."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar, TypeVar

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from rpeg.ir.base import RpegOp
from rpeg.ir.layout import width_of
from rpeg.ir.ops.declare import DeclareOp, ModelOp, PipelineOp
from rpeg.ir.ops.effects import StopOp
from rpeg.ir.ops.movement import PublishOp, RanksOp, pool_of
from rpeg.ir.ops.plan import integers
from rpeg.ir.ops.regions import CollectOp, EveryOp
from rpeg.ir.ops.sampling import GenerateOp
from rpeg.ir.ops.step import StepOp
from rpeg.ir.pools import home_of, trained_on
from rpeg.ir.rrt.calls import CallOp
from rpeg.ir.rrt.program import AheadOp, LoopOp, ProgramOp
from rpeg.ir.rsched import SequenceOp, labelled
from rpeg.ir.rules.ranks import groups_of
from rpeg.ir.stages import stages
from rpeg.ir.types.attributes import SOURCE_HASH, RecordAttr, plain
from rpeg.ir.types.flow import symbol_text
from rpeg.passes.base import Levels, PassRefused, Problem, RpegPass, pipelines, step
from rpeg.passes.declarations import Declarations
from rpeg.passes.layouts import clause_problems, layout_of, settings_of, shares_of, title_of
from rpeg.passes.programs import (
    Cannot,
    NotHere,
    Place,
    Program,
    collecting,
    crossing,
    flights,
    lower,
    publish,
    receive,
    report,
    sampling,
)
from rpeg.passes.statistics import Meanings

ORDERS = ("index", "completion")

Lowered = TypeVar("Lowered", bound=Operation)


@dataclass(frozen=True)
class RpegLowerToProgramsPass(RpegPass):
    """
    Replaces each scheduled pipeline by its programs: what exists is made, then a loop runs the
    tasks of the sequence, instruction by instruction. What this version does not compile is refused
    by name.

    After:
        rrt.program @grpo_all "all" 2 {
          %run = rrt.call "start" {pipeline = "grpo", steps = 300 : i64, ...}
          ...
          rrt.loop %run index %i {
            %q = rrt.call "batch" of %train {size = 64 : i64, order = "shuffle", seed = 0 : i64}
            %y, %lp = rrt.call "generate" of %actor_engine(%q) {n = 8 : i64, ...}
    """

    name = "rpeg-lower-to-programs"
    LEVELS: ClassVar[Levels] = {"L2": "L3"}
    STATISTICS: ClassVar[Meanings] = {"instructions emitted": "calls in the programs"}
    order: str = "index"
    """`index`: a batch is the samples of its own prompts; `completion`: the first groups that end,
    of an engine on a pool of its own."""

    def __post_init__(self) -> None:
        """Raises ValueError for another order."""
        if self.order not in ORDERS:
            raise ValueError(f"`order` is {' or '.join(ORDERS)}, not {self.order}")

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        for pipeline in list(pipelines(op)):
            block = pipeline.parent_block()
            assert block is not None
            completion = self.order == "completion"
            for program in reversed(_programs(pipeline, _source_hash(op), completion)):
                calls = sum(isinstance(o, CallOp) for o in program.walk())
                self.count("instructions emitted", calls)
                block.insert_op_after(program, pipeline)
            Rewriter.erase_op(pipeline)


def _programs(pipeline: PipelineOp, source_hash: str, completion: bool) -> list[ProgramOp]:
    """One program per process group. Raises PassRefused with everything that does not compile."""
    ops = list(pipeline.body.block.ops)
    groups = [o for o in ops if isinstance(o, RanksOp)]
    sequences = {symbol_text(o.pool): o for o in ops if isinstance(o, SequenceOp)}
    if {group.title for group in groups} != sequences.keys():
        text = "a process group has no rsched.sequence: run rpeg-schedule first"
        raise PassRefused(pipeline, text)
    home = home_of(step(pipeline)) or groups[0].title
    trained = trained_on(step(pipeline))
    made: list[ProgramOp] = []
    if completion and (refused := list(flights.problems(step(pipeline)))):
        raise PassRefused.of(refused)
    problems: dict[Problem, None] = {}
    for group in groups:
        place = Place(group.title, home, trained, several=len(groups) > 1, completion=completion)
        generator = ProgramGen(pipeline, source_hash, place)
        made.append(generator.run(group, sequences[group.title]))
        problems |= dict.fromkeys(generator.problems)
    if problems:
        raise PassRefused.of(sorted(problems, key=lambda p: (p.at.line, p.at.column)))
    return made


def _measures(op: Operation) -> bool:
    """Whether an operation comes after the step's work: an `every` that makes no state."""
    return isinstance(op, EveryOp) and not op.carried


def _source_hash(module: ModuleOp) -> str:
    held = module.attributes.get(SOURCE_HASH)
    if isinstance(held, StringAttr):
        return held.data
    return hashlib.sha256(str(module).encode()).hexdigest()


class ProgramGen:
    """Builds the program of one process group."""

    def __init__(self, pipeline: PipelineOp, source_hash: str, place: Place) -> None:
        self.pipeline = pipeline
        self.step: StepOp = step(pipeline)
        self.source_hash = source_hash
        self.place = place
        self.problems: list[Problem] = []
        """Everything that does not compile."""

    def run(self, group: RanksOp, sequence: SequenceOp) -> ProgramOp:
        """The program; as far as it goes, where there are problems."""
        op = ProgramOp.of(self.pipeline.title, group.title, len(group.ranks))
        op.location = self.pipeline.location
        program = self._start(op)
        program.groups, program.shares = self._groups(program, group)
        self._declare(program)
        self._loop(program, sequence)
        program.call(self.pipeline, "finish", receiver=program.run)
        return op

    def _start(self, op: ProgramOp) -> Program:
        groups = groups_of(self.pipeline)
        settings: dict[str, Attribute] = {
            "pipeline": StringAttr(self.pipeline.title),
            "steps": plain(self.step.steps),
            "processes": plain(sum(len(g.ranks) for g in groups.values())),
            "source_sha256": StringAttr(self.source_hash),
        }
        if any(isinstance(part, StopOp) for part in self.step.walk()):
            settings["may_stop"] = plain(True)
        if self.place.several:
            bounds = {name: integers(g.ranks.start, g.ranks.stop) for name, g in groups.items()}
            settings["pools"] = RecordAttr.make("pools", bounds)
            settings["pool"] = StringAttr(self.place.pool)
            settings["home"] = StringAttr(self.place.home)
        started = CallOp.of("start", settings=settings)
        started.location = self.pipeline.location
        builder = Builder(InsertPoint.at_end(op.body.block))
        run = builder.insert(started).results[0]
        run.name_hint = "run"
        return Program(run, builder, self.place)

    # ---- what exists

    def _groups(
        self, program: Program, group: RanksOp
    ) -> tuple[Mapping[str, SSAValue], Mapping[str, SSAValue]]:
        """(the process groups of each model, by its name; those over which its batches are split):
        models of one layout share them. The first that are made say how batches are split.
        """
        layouts = self._layouts()
        wide = self._shares(layouts.values(), group)
        made: dict[RecordAttr, SSAValue] = {}
        for layout in (wide, *layouts.values()):
            if layout not in made:
                record = {"layout": RecordAttr.make("Layout", settings_of(layout))}
                call = program.call(group, "groups", receiver=program.run, settings=record)
                made[layout] = call.results[0]
        for layout, value in made.items():
            value.name_hint = f"groups_{title_of(layout)}" if len(made) > 1 else "groups"
        dp = width_of(wide, "dp")
        alike = {m: x if width_of(x, "dp") == dp else wide for m, x in layouts.items()}
        groups = {model: made[layout] for model, layout in layouts.items()}
        return groups, {model: made[layout] for model, layout in alike.items()}

    def _shares(self, layouts: Iterable[RecordAttr], group: RanksOp) -> RecordAttr:
        """The layout by which batches are split: a model's, if one has this width."""
        placed = [op for op in stages(self.pipeline).values() if pool_of(op) == group.title]
        wide = shares_of(placed)
        if wide is None:
            text = f"no stage runs on `{group.title}`: place one there, or take the group out"
            raise PassRefused(group, text)
        dp = width_of(wide, "dp")
        return next((layout for layout in layouts if width_of(layout, "dp") == dp), wide)

    def _layouts(self) -> Mapping[str, RecordAttr]:
        """The layout of each model on this pool; of one that is not here, where its rows are."""
        placed = [op for op in stages(self.pipeline).values() if self.place.runs(op)]
        self.problems += clause_problems(placed)
        found: dict[str, RecordAttr] = {}
        for op in self.pipeline.body.block.ops:
            if isinstance(op, ModelOp) and op.used():
                layout = layout_of(op.title, placed)
                if layout is None:
                    text = "no stage has a layout: run rpeg-annotate-parallelism first"
                    raise PassRefused(self.pipeline, text)
                found[op.title] = layout
        return found

    def _declare(self, program: Program) -> None:
        declarations = Declarations(program, self.step)
        for declared in self._declared():
            if declarations.needed(declared):
                self._attempt(declarations.one, declared)
        publishes = [op for op in self.step.walk() if isinstance(op, PublishOp)]
        for made in publishes:
            self._attempt(declarations.publishing, made)
        for op in self.step.walk():
            if isinstance(op, GenerateOp) and self._buffered(op):
                declarations.buffer(op)
            elif isinstance(op, GenerateOp) and self._in_flight(op):
                self._attempt(lambda op: flights.declare(program, op), op)
            elif isinstance(op, CollectOp) and self.place.runs(op):
                collecting.declare(program, op)
        for each in crossing.crossings(self.step):
            if self.place.pool in (each.source, each.target):
                crossing.declare(program, each)
        self._attempt(declarations.shared_tokens, self.step)
        program.call(self.pipeline, "restore", receiver=program.run)
        for op in publishes:
            if self.place.at_home and op.parent_op() is self.step:
                self._attempt(lambda op: publish(program, op), op)

    def _declared(self) -> list[DeclareOp]:
        """What the pipeline declares, in the order in which programs make it: models, which take
        longest, after what else may be wrong.
        """
        found = (op for op in self.pipeline.body.block.ops if isinstance(op, DeclareOp))
        return sorted(found, key=lambda op: isinstance(op, ModelOp))

    def _buffered(self, op: GenerateOp) -> bool:
        """Whether what it makes waits for its step in a buffer: not behind a channel or a collect
        that holds it to its bound.
        """
        collect = op.parent_op()
        kept = isinstance(collect, CollectOp) and collecting.waiting(collect) is not None
        return self.place.at_home and self.place.runs(op) and not kept

    def _in_flight(self, op: GenerateOp) -> bool:
        return self.place.completion and self.place.runs(op)

    # ---- the loop

    def _loop(self, program: Program, sequence: SequenceOp) -> None:
        loop = LoopOp.of(program.run, self.step.index.data)
        loop.location = self.step.location
        program.builder.insert(loop)
        program.loop = loop
        inside = program.inside(Builder(InsertPoint.at_end(loop.body.block)))
        if not self.place.at_home:
            for model in program.registers:
                receive(inside, self.step, model)
        tasks = labelled(self.step)
        order = [(tasks[label], task.ahead) for label, task in sequence.tasks.items()]
        offered = {op.prompts.owner for op in program.flights if isinstance(op, GenerateOp)}
        order = [entry for entry in order if entry[0] not in offered]
        ending = next((k for k, (op, _) in enumerate(order) if _measures(op)), len(order))
        for ahead, entries in groupby(order[:ending], key=lambda entry: entry[1]):
            ops = [op for op, _ in entries]
            if ahead is not None:
                self._fill(inside, ops)
                continue
            for op in ops:
                self._lower(inside, op)
        self._attempt(lambda step: report(inside, step), self.step)
        for op, _ in order[ending:]:
            self._lower(inside, op)

    def _fill(self, program: Program, tasks: Sequence[Operation]) -> None:
        """What fills buffers ahead of the step; then what they hold for it."""
        held = {**program.buffers, **program.collects}
        fills = [op for op in tasks if op in held]
        if not fills:
            text = "it runs ahead, and no generate behind it fills a buffer: move it next to one"
            self.problems.append(Problem(tasks[0], text))
            return
        if self.place.several:
            text = (
                "older weights, sampled from where they are trained, do not compile in a plan of "
                "several pools yet: sample on another pool, or read @i"
            )
            self.problems.append(Problem(fills[0], text))
            return
        assert program.loop is not None
        ahead = AheadOp.of(held[fills[0]], program.loop.step)
        ahead.location = fills[0].location
        inside = program.inside(Builder(InsertPoint.at_end(ahead.body.block)), ahead=True)
        program.builder.insert(ahead)
        for op in tasks:
            self._lower(inside, op)
        for op in fills:
            if isinstance(op, GenerateOp):
                sampling.take(program, op)
            elif isinstance(op, CollectOp):
                self._attempt(lambda op: collecting.take(program, op), op)

    def _lower(self, program: Program, op: Operation) -> None:
        assert isinstance(op, RpegOp)
        if isinstance(op, GenerateOp) and op in program.flights:
            self._attempt(lambda op: flights.offer(program, op), op)
        self._attempt(lambda task: lower(program, task), op)

    def _attempt(self, lowering: Callable[[Lowered], None], op: Lowered) -> None:
        """Notes what does not compile, and goes on, so that all refusals are reported together."""
        try:
            lowering(op)
        except Cannot as refusal:
            self.problems.append(Problem(refusal.op, refusal.why))
        except NotHere:
            assert self.problems, f"{op.name} needs what nothing makes"
