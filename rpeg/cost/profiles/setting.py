"""What stages are priced with: machine, models, rows, and what software makes of the hardware."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from xdsl.ir import Operation

from rpeg.cost.generation import Engine, eager
from rpeg.cost.hardware import Machine
from rpeg.cost.layers import MEASURED
from rpeg.cost.platform import Platform
from rpeg.cost.profiles.layouts import Layout, layout_of
from rpeg.cost.profiles.sampling import Rollouts
from rpeg.cost.profiles.shapes import ModelShape, model_shapes
from rpeg.cost.profiles.workload import Workload
from rpeg.cost.rl import REST, REST_SHARED
from rpeg.cost.training import Software
from rpeg.cost.validation.eras import chosen, shipped_eras
from rpeg.cost.validation.rl_step import SEQUENCE_S, software
from rpeg.ir.base import RpegOp
from rpeg.ir.declared import step_of
from rpeg.ir.ops.declare import PipelineOp
from rpeg.ir.ops.effects import EvalOp
from rpeg.ir.ops.movement import clause_of, model_of, pool_of
from rpeg.ir.ops.plan import PlanOp
from rpeg.ir.ops.sampling import GenerateOp
from rpeg.ir.ops.updates import UpdateOp
from rpeg.ir.rules.ranks import groups_of
from rpeg.ir.stages import stages

FRAMEWORK = "rpeg bf16"
"""The era of our own runs; of one without constants, those of its kind are taken."""


MEASURED_STEP, MEASURED_OPTIMIZER, MEASURED_PUBLISH = 670.0, 120.0, 130.0
"""Launches of RPEG's own trainer: for an optimizer step (batch, losses, norms), and for each layer
(the optimizer's tensors; the engine's new ones). A test counts the update's, as `MEASURED`.
"""

MEASURED_BOOKS, MEASURED_GATHER = 800.0, 200.0
"""The same for what lies between the stages of a step, and for an object that is gathered, which
is pickled.
"""

MEASURED_ADAM = 100.0
"""Bytes that its optimizer moves for a float32 weight, in one pass an operation: a test counts."""


@dataclass(frozen=True)
class Assumptions:
    """What software makes of the hardware."""

    training: Software
    sampling: Engine
    rest: float = REST
    """Share of a stage besides what is modelled, on a pool of its own."""
    rest_shared: float = REST_SHARED
    """The same where engine and trainer take turns on the same processes."""
    publish_launches: float = 0.0
    """For each layer whose weights an engine on the trainer's processes takes over."""
    book_launches: float = 0.0
    """For each step, besides its stages: prompts, advantages, texts, metrics, and their files."""
    gather_launches: float = 0.0
    """For each object that all processes hand to each other; with two messages."""
    by_message: bool = False
    """Whether weights for an engine on the trainer's processes go tensor by tensor."""

    @classmethod
    def usual(cls, platform: Platform, samples: bool) -> Assumptions:
        """Published steps ran on GPUs; how fast cores are is only ever measured."""
        return cls.shipped(samples) if platform.has_gpus else cls.measured(platform.machine)

    @classmethod
    def shipped(cls, samples: bool) -> Assumptions:
        """Medians over published steps: of reinforcement learning, or of training alone."""
        eras = shipped_eras()
        if not samples:
            era = chosen(eras, "train", FRAMEWORK)
            return cls(Software(era.slowdown, era.second), Engine(), 0.0, 0.0)
        era = chosen(eras, "rl_step", FRAMEWORK)
        engine = Engine(slowdown=era.slowdown, sequence_s=SEQUENCE_S, step_s=era.second)
        return cls(software(era.slowdown), engine)

    @classmethod
    def measured(cls, machine: Machine) -> Assumptions:
        """Of a machine whose figures were measured through this software: nothing is added but
        what Python starts one by one, engine and trainer alike.
        """
        software = Software(
            host=MEASURED,
            step_s=MEASURED_STEP * machine.launch_s,
            layer_launches=MEASURED_OPTIMIZER,
            adam_bytes=MEASURED_ADAM,
        )
        engine = Engine(sequence_s=0.0, step_s=0.0, graph_kernel_s=0.0)
        return cls(
            software,
            eager(engine),
            rest=0.0,
            rest_shared=0.0,
            publish_launches=MEASURED_PUBLISH,
            book_launches=MEASURED_BOOKS,
            gather_launches=MEASURED_GATHER,
            by_message=True,
        )


@dataclass(frozen=True)
class Cores:
    """A pool of cores that verifies."""

    pool: str
    number: int


def checkers_of(plan: PlanOp) -> dict[str, Cores]:
    """The stages that a plan places on pools of cores beside those of GPUs, without a layout."""
    pools = {pool.title: pool.cores for pool in plan.pools}
    lines = ((line, pools.get(line.pool_name)) for line in plan.places)
    return {
        line.title: Cores(line.pool_name, cores)
        for line, cores in lines
        if cores and line.clause("par") is None
    }


@dataclass(frozen=True)
class Inputs:
    """What a user says besides file, plan and cluster."""

    folder: Path = Path()
    """What paths in the file are relative to."""
    shapes: Mapping[str, str] = field(default_factory=dict[str, str])
    """Architectures by model, where the file's sources don't tell."""
    checkers: Mapping[str, Cores] = field(default_factory=dict[str, "Cores"])
    """By verifying stage, of those with a pool of cores of their own."""
    assumptions: Assumptions | None = None
    """None: those of published steps."""
    notes: tuple[str, ...] = ()
    """What else an estimate is to note."""


@dataclass(frozen=True)
class Setting:
    """Everything that the price of a stage depends on."""

    pipeline: PipelineOp
    platform: Platform
    models: Mapping[str, ModelShape]
    workload: Workload
    assumptions: Assumptions
    checkers: Mapping[str, Cores]

    @classmethod
    def of(cls, pipeline: PipelineOp, platform: Platform, inputs: Inputs) -> Setting:
        """Of a pipeline at L1. Raises ShapeError."""
        samples = any(isinstance(op, GenerateOp) for op in pipeline.walk())
        models = model_shapes(pipeline, inputs.folder, inputs.shapes)
        of_models = dict.fromkeys(note for each in models.values() for note in each.shape.notes)
        return cls(
            pipeline,
            platform,
            models,
            Workload(pipeline, inputs.folder, [*inputs.notes, *of_models]),
            inputs.assumptions or Assumptions.usual(platform, samples),
            inputs.checkers,
        )

    @property
    def machine(self) -> Machine:
        """Speeds of the cluster."""
        return self.platform.machine

    @cached_property
    def stages(self) -> Mapping[str, RpegOp]:
        """The stages of the step by name, in program order."""
        step = step_of(self.pipeline) or self.pipeline
        return stages(step)

    @cached_property
    def pools(self) -> Mapping[str, int]:
        """Processes of each pool."""
        return {name: len(ranks.ranks) for name, ranks in groups_of(self.pipeline).items()}

    def model(self, op: Operation) -> ModelShape:
        """The model that a stage works with."""
        return self.models[model_of(op) or ""]

    def rollouts(self, op: RpegOp) -> Rollouts:
        """The engine of a stage that samples, or asks a judge."""
        dtype = op.text_of("dtype") if isinstance(op, GenerateOp) else "bf16"
        return Rollouts.of(self.model(op), layout_of(op), clause_of(op, "engine"), dtype)

    def samplers(self, model: str, pool: str | None) -> list[RpegOp]:
        """The stages that sample from a model on a pool."""
        return [
            op
            for op in self.stages.values()
            if isinstance(op, GenerateOp | EvalOp) and model_of(op) == model and pool_of(op) == pool
        ]

    def trainer(self, model: str) -> UpdateOp | None:
        """The update of a model."""
        updates = (op for op in self.stages.values() if isinstance(op, UpdateOp))
        return next((op for op in updates if op.makes() == model), None)

    def home_layout(self, model: str) -> Layout:
        """How a trained model is spread where it is trained."""
        update = self.trainer(model)
        return layout_of(update) if update is not None else Layout()

    def shared(self, pool: str | None) -> bool:
        """Whether a pool both samples and trains."""
        on = [op for op in self.stages.values() if pool_of(op) == pool]
        samples = any(isinstance(op, GenerateOp) for op in on)
        return samples and any(isinstance(op, UpdateOp) for op in on)
