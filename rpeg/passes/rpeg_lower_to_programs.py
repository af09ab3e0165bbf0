"""`rpeg-lower-to-programs`: from L2 to L3, one program for each process group."""

import hashlib
from dataclasses import dataclass

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, StringAttr, i64
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import InsertPoint

from rpeg.ir.attributes import RecordAttr, plain
from rpeg.ir.base import RpegOp
from rpeg.ir.ops.declare import DataOp, DeclareOp, ModelOp, PipelineOp, VerifierOp
from rpeg.ir.ops.effects import EvalOp
from rpeg.ir.ops.movement import PublishOp, RanksOp, clause_of
from rpeg.ir.ops.regions import EveryOp
from rpeg.ir.ops.sampling import GenerateOp
from rpeg.ir.ops.step import StepOp
from rpeg.ir.ops.updates import UpdateOp
from rpeg.ir.rrt import CallOp, LoopOp, ProgramOp
from rpeg.ir.rsched import SequenceOp, labelled
from rpeg.ir.settings import python_value
from rpeg.ir.stages import stages
from rpeg.ir.types import TrajectoriesType
from rpeg.passes.base import PassRefused, RpegPass, pipelines, step
from rpeg.passes.programs import Cannot, Program, lower, publish, report

SOURCE_HASH = "rpeg.source_sha256"
"""Attribute of a module that was read from a text: the text's SHA-256."""


@dataclass(frozen=True)
class RpegLowerToProgramsPass(RpegPass):
    """
    Replaces each scheduled pipeline by its programs: what exists is made, then a loop runs the tasks of
    the sequence, instruction by instruction. What this version does not compile is refused by name.

    After:
        rrt.program @grpo_all "all" 2 {
          %run = rrt.call "start" {pipeline = "grpo", steps = 300 : i64, ...}
          ...
          rrt.loop %run index %i {
            %q = rrt.call "batch" of %train {size = 64 : i64, order = "shuffle", seed = 0 : i64}
            %y, %lp = rrt.call "generate" of %actor_engine(%q) {n = 8 : i64, ...}
    """

    name = "rpeg-lower-to-programs"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for pipeline in list(pipelines(op)):
            program = ProgramGen(pipeline, _source_hash(op)).run()
            block = pipeline.parent_block()
            assert block is not None
            block.insert_op_after(program, pipeline)
            pipeline.detach()
            pipeline.erase()


def _source_hash(module: ModuleOp) -> str:
    held = module.attributes.get(SOURCE_HASH)
    if isinstance(held, StringAttr):
        return held.data
    return hashlib.sha256(str(module).encode()).hexdigest()


class ProgramGen:
    """Builds the program of a pipeline's one process group."""

    def __init__(self, pipeline: PipelineOp, source_hash: str) -> None:
        self.pipeline = pipeline
        self.step: StepOp = step(pipeline)
        self.source_hash = source_hash
        self.problems: list[tuple[Operation, str]] = []

    def run(self) -> ProgramOp:
        """The program; raises PassRefused with everything that does not compile."""
        group, sequence = self._scheduled()
        op = ProgramOp.of(self.pipeline.title, group.title, len(group.ranks))
        op.location = self.pipeline.location
        builder = Builder(InsertPoint.at_end(op.body.block))
        started = CallOp.of("start", settings=self._start(group))
        started.location = self.pipeline.location
        run = builder.insert(started).results[0]
        run.name_hint = "run"
        program = Program(run, builder)
        self._declare(program, group)
        if not self.problems:
            self._loop(program, sequence)
        if self.problems:
            raise PassRefused.of(self.problems)
        program.call(self.pipeline, "finish", receiver=run)
        return op

    def _scheduled(self) -> tuple[RanksOp, SequenceOp]:
        ops = list(self.pipeline.body.block.ops)
        groups = [o for o in ops if isinstance(o, RanksOp)]
        sequences = [o for o in ops if isinstance(o, SequenceOp)]
        if len(groups) != 1 or len(sequences) != 1:
            text = "programs are made of a scheduled pipeline: run rpeg-schedule first"
            raise PassRefused(self.pipeline, text)
        return groups[0], sequences[0]

    def _start(self, group: RanksOp) -> dict[str, Attribute]:
        return {
            "pipeline": StringAttr(self.pipeline.title),
            "steps": IntegerAttr(self.step.steps, i64),
            "processes": IntegerAttr(len(group.ranks), i64),
            "source_sha256": StringAttr(self.source_hash),
        }

    # ---- what exists

    def _declare(self, program: Program, group: RanksOp) -> None:
        groups = self._groups(program, group)
        for op in self.pipeline.body.block.ops:
            if isinstance(op, DeclareOp) and op.used():
                self._one(program, op, groups)
        if self.problems:
            return
        self._engines(program, groups)
        self._buffers(program)
        program.call(self.pipeline, "restore", receiver=program.run)
        for model in program.engines:
            publish(program, self.step, model)

    def _groups(self, program: Program, group: RanksOp) -> SSAValue:
        layouts = {c: o for o in stages(self.pipeline).values() if (c := clause_of(o, "par"))}
        for layout, op in list(layouts.items())[1:]:
            self.problems.append((op, f"one layout a pipeline in this version; {_widths(layout)}"))
        layout = next(iter(layouts), None)
        if layout is None:
            raise PassRefused(group, "no stage has a layout: run rpeg-annotate-parallelism first")
        made = program.call(group, "groups", receiver=program.run, layout=self._layout(layout))
        made.results[0].name_hint = "groups"
        return made.results[0]

    def _layout(self, par: RecordAttr) -> RecordAttr:
        values = {k: v for k, v in par.settings.items() if k != "order"}
        wide = [k for k in ("tp", "pp", "cp", "ep", "vpp") if python_value(values.get(k)) not in (1, None)]
        if wide or python_value(values.get("zero")) or python_value(values.get("sp")):
            at = next(o for o in stages(self.pipeline).values() if clause_of(o, "par") == par)
            text = f"{_widths(par)}: this version compiles data-parallel layouts, par(dp=...)"
            self.problems.append((at, text))
        return RecordAttr.make("Layout", values)

    def _one(self, program: Program, op: DeclareOp, groups: SSAValue) -> None:
        match op:
            case ModelOp():
                made = self._model(program, op, groups)
            case DataOp():
                cls = "PromptData" if op.form_name == "prompts" else "DemoData"
                made = program.call(
                    op, cls, program.run, name=op.sym_name, source=op.source, **op.settings()
                )
            case VerifierOp() if op.form_name == "outcome":
                made = program.call(
                    op,
                    "Verifier",
                    program.run,
                    name=op.sym_name,
                    kind=op.form,
                    source=op.source,
                    **op.settings(),
                )
            case _:
                self._refuse(op, f"`{op.title}`: {op.KIND} {op.form_name} does not compile yet")
                return
        if made is not None:
            made.results[0].name_hint = op.title
            program.objects[op.title] = made.results[0]

    def _model(self, program: Program, op: ModelOp, groups: SSAValue) -> CallOp | None:
        if op.form_name != "policy" or op.lora is not None or op.float_of("router_aux"):
            self._refuse(op, f"`{op.title}`: only dense policies without adapters compile yet")
            return None
        settings = {"name": op.sym_name, "role": op.form, "dtype": op.dtype}
        if op.optim is not None:
            return self._trainer(program, op, settings, groups)
        keywords = {"groups": groups}
        source = op.source
        if op.initial is not None:
            if op.initial not in program.objects:
                self._refuse(op, f"`{op.title}` starts from `{op.initial}`, which is not trained")
                return None
            initial = program.call(op, "InitialWeights", program.objects[op.initial])
            initial.results[0].name_hint = f"{op.initial}_initial"
            keywords["source"] = initial.results[0]
            source = None
        return program.call(
            op, "FrozenModel", program.run, keywords=keywords, source=source, **settings
        )

    def _trainer(
        self, program: Program, op: ModelOp, settings: dict[str, Attribute], groups: SSAValue
    ) -> CallOp | None:
        if op.initial is not None:
            self._refuse(op, f"`{op.title}`: training from another model's initial weights does not compile yet")
            return None
        assert isinstance(op.optim, RecordAttr)
        updates = (o for o in self.step.walk() if isinstance(o, UpdateOp))
        clause = next((clause_of(u, "mb") for u in updates if u.makes() == op.title), None)
        return program.call(
            op,
            "Trainer",
            program.run,
            keywords={"groups": groups},
            source=op.source,
            optimizer=RecordAttr.make("AdamW", op.optim.settings),
            horizon=plain(self.step.steps),
            micro_batch=RecordAttr.make("MicroBatch", clause.settings) if clause else None,
            **settings,
        )

    def _engines(self, program: Program, groups: SSAValue) -> None:
        published = [o for o in self.step.walk() if isinstance(o, PublishOp)]
        for op in published:
            model = op.weights.type.owner  # type: ignore[attr-defined]
            engine = self._engine_clause(model)
            trainer = program.objects[model]
            register = program.call(op, "LatestWeights", program.run, trainer)
            register.results[0].name_hint = f"{model}_weights"
            program.registers[model] = register.results[0]
            if engine is not None and python_value(engine.settings.get("name")) != "embedded":
                text = "engine(name=vllm) does not compile yet: write engine(name=embedded)"
                self._refuse(op, text)
            made = program.call(
                op, "EmbeddedEngine", program.run, trainer, keywords={"groups": groups}
            )
            made.results[0].name_hint = f"{model}_engine"
            program.engines[model] = made.results[0]

    def _engine_clause(self, model: str) -> RecordAttr | None:
        readers = (o for o in self.step.walk() if isinstance(o, GenerateOp | EvalOp))
        clauses = (clause_of(o, "engine") for o in readers)
        return next((c for c in clauses if c is not None), None)

    def _buffers(self, program: Program) -> None:
        for op in self.step.walk():
            if isinstance(op, GenerateOp) and isinstance(op.trajectories.type, TrajectoriesType):
                made = program.call(
                    op,
                    "TrajectoryBuffer",
                    program.run,
                    capacity=plain(1),
                    max_lag=plain(op.trajectories.type.lag[1]),
                    bound=op.bound or plain("strict"),
                )
                made.results[0].name_hint = f"{op.trajectories.name_hint or 'y'}_buffer"
                program.buffers[op] = made.results[0]

    # ---- the loop

    def _loop(self, program: Program, sequence: SequenceOp) -> None:
        loop = LoopOp.of(program.run, self.step.index.data)
        loop.location = self.step.location
        program.builder.insert(loop)
        program.loop = loop
        inside = program.inside(Builder(InsertPoint.at_end(loop.body.block)))
        tasks = labelled(self.step)
        order = [tasks[label] for label in sequence.labels]
        last = next((o for o in order if isinstance(o, EveryOp)), None)
        for op in order:
            if op is last and not self.problems:
                report(inside, self.step)
            self._lower(inside, op)
        if last is None and not self.problems:
            report(inside, self.step)

    def _lower(self, program: Program, op: Operation) -> None:
        assert isinstance(op, RpegOp)
        try:
            lower(program, op)
        except Cannot as refusal:
            self._refuse(refusal.op, refusal.why)
        except KeyError:
            # What makes an operand was refused above: one message is enough.
            if not self.problems:
                raise

    def _refuse(self, op: Operation, why: str) -> None:
        self.problems.append((op, why))


def _widths(par: RecordAttr) -> str:
    shown = {k: python_value(v) for k, v in par.settings.items()}
    return "par(" + ", ".join(f"{k}={v}" for k, v in shown.items() if v not in (1, 0, False, "none")) + ")"
