"""Whether programs can resume from a run's newest checkpoint, checked before they are written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from rpeg.ir.rrt.calls import CallOp
from rpeg.ir.vocabulary.settings import python_value
from rpeg.lowering.package import programs
from rpeg.rundir.ahead import buffer_part, flight_part, refuse_buffers, refuse_order
from rpeg.rundir.folder import RunFolder


def refuse_other_batches(run_dir: Path, module: ModuleOp) -> None:
    """Raises CheckpointFailure if the checkpoint holds samples of batches to come that the programs
    of a verified L3 module have no place for, or the other way round.
    """
    saved = sorted(RunFolder(run_dir).checkpoints.glob("step-*"))
    if saved:
        kept = set(_kept(module))
        refuse_buffers(saved[-1], kept)
        refuse_order(saved[-1], kept)


def _kept(module: ModuleOp) -> Iterator[str]:
    """Parts of checkpoints that keep what is sampled ahead."""
    for program in programs(module):
        for op in program.walk():
            if isinstance(op, CallOp) and op.receiver is None:
                yield from _parts(op)


def _parts(op: CallOp) -> Iterator[str]:
    settings: dict[str, Any] = {name: python_value(value) for name, value in op.settings.items()}
    match op.callee.data:
        case "TrajectoryBuffer" if settings["capacity"] > 1:
            yield buffer_part(settings["name"])
        case "Collect" if settings.get("max_lag"):
            yield buffer_part(settings["name"])
        case "Rollouts":
            yield flight_part(settings["name"])
