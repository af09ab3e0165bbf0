"""A layout's L1, interpreted in one process instead of launched in many."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from rpeg.interp import TeacherForced, World
from rpeg.interp.l1 import PlacedInterpreter, Shuffled
from rpeg.passes.layout_names import parse_layout
from rpeg.passes.rpeg_annotate_parallelism import RpegAnnotateParallelismPass
from rpeg.runtime.recordings.recording import Recording


@dataclass(frozen=True)
class Placing:
    """What the layouts are interpreted of."""

    module: ModuleOp
    """L0."""
    pipeline: str
    folder: Path
    """Which sources resolve against."""
    seed: int
    recorded: Recording

    def run(self, layout: str) -> Recording:
        """What the layout computes, in an order drawn from the seed. Raises InterpreterError."""
        placed, settings = self.module.clone(), _settings(layout)
        RpegAnnotateParallelismPass(**settings).apply(Context(), placed)
        oracle, timing = TeacherForced(self.recorded), Shuffled(self.seed)
        world = World(self.folder)
        return PlacedInterpreter(placed, self.pipeline, world, self.seed, oracle, timing).run()


def _settings(layout: str) -> dict[str, Any]:
    return {**parse_layout(layout)}
