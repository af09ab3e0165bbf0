"""From the command line to an estimate: what `explain`, `simulate`, `report` and `check` share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rpeg.cost.estimate import Estimate
from rpeg.cost.period.cycles import Deadlock
from rpeg.cost.period.graph import TaskGraph
from rpeg.cost.pricing import estimate_of, step_graph
from rpeg.cost.profiles.setting import Inputs, Setting
from rpeg.cost.profiles.shapes import ShapeError
from rpeg.ir.ops.declare import ModelOp, PipelineOp
from rpeg.ir.rules.violations import hint
from rpeg.ir.text.diagnostics import DiagnosticsError
from rpeg.tools.console import USAGE, Failure, Source, report
from rpeg.tools.predicting.arguments import Target
from rpeg.tools.predicting.placing import Placed, place, platform_of, refused
from rpeg.tools.predicting.refusals import refusals


@dataclass(frozen=True)
class Predicted:
    """A pipeline of a file under a plan, and what it costs."""

    placed: Placed
    setting: Setting
    graph: TaskGraph
    """The tasks of a step."""
    estimate: Estimate


def predict(source: Source, target: Target) -> Predicted:
    """What the one pipeline of a file costs where `target` says. Raises Failure."""
    there = place(source, target)
    try:
        return predicted(there, target)
    except DiagnosticsError as error:
        report(error.diagnostics, source)
        raise


def predicted(there: Placed, target: Target) -> Predicted:
    """What a placed pipeline costs.

    Raises:
        NoSpeeds: nothing tells how fast the cluster is.
        Failure: an architecture is named for no model.
        DiagnosticsError: the shape of a model isn't known, tasks wait for each other, or what
            the plan says can't run.
    """
    scheduled = there.scheduled()
    _known(scheduled, target.architectures)
    inputs = Inputs(there.source.folder, target.architectures, there.checkers, notes=there.notes)
    try:
        setting = Setting.of(scheduled, platform_of(there.cluster), inputs)
        if problems := list(refusals(setting, there.source.name)):
            raise DiagnosticsError(problems)
        graph = step_graph(setting)
        return Predicted(there, setting, graph, estimate_of(setting, graph, there.plan))
    except ShapeError as error:
        raise refused(error.op, error.message, there.source) from error
    except Deadlock as error:
        raise refused(scheduled, str(error), there.source) from error


def _known(pipeline: PipelineOp, architectures: Mapping[str, str]) -> None:
    models = [op.title for op in pipeline.ops_of(ModelOp)]
    for name, shape in architectures.items():
        if name not in models:
            near = hint(name, models) or f"; the pipeline has: {', '.join(models)}"
            raise Failure(f"--arch {name}={shape}: there is no model `{name}`{near}", USAGE)
