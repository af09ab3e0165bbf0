"""What the stages of a placed pipeline are priced with."""

from __future__ import annotations

from rpeg.cost.platform import load_platform
from rpeg.cost.profiles.setting import Inputs, Setting
from rpeg.cost.profiles.shapes import ShapeError
from rpeg.ir.clusters import ClusterError
from rpeg.ir.text.diagnostics import DiagnosticsError
from rpeg.ir.text.sources import Sources
from rpeg.passes.base import pipelines
from rpeg.tools.console import Failure, report
from rpeg.tools.predicting.arguments import Target
from rpeg.tools.predicting.placing import Placed


def scheduled_setting(there: Placed, target: Target) -> Setting:
    """The setting of a pipeline at L2. Raises Failure."""
    try:
        pipeline = next(pipelines(there.scheduled()))
        inputs = Inputs(there.source.folder, target.architectures, checkers=there.checkers)
        return Setting.of(pipeline, load_platform(there.cluster), inputs)
    except DiagnosticsError as error:
        report(error.diagnostics, there.source)
        raise
    except ShapeError as error:
        report([Sources(there.source.name).message(error.op, error.message)], there.source)
        raise
    except ClusterError as error:
        raise Failure(str(error)) from None
